"""Signatures of components, read from source files."""
