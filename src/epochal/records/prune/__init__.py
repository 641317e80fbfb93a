"""Deletes runs by policy, and measures the freed space."""
