"""Builds the parts of a run from a checked config."""
