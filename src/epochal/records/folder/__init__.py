"""Writes and reads the folder of one run."""
