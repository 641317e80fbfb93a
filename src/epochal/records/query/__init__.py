"""Queries about runs: a small language, compiled to SQL over the index."""
