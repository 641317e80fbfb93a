"""Merges config file, command line and Python objects into one checked config."""
