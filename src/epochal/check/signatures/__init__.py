"""Signatures of components, read from source text."""
