"""Deletes runs by policy: which ones, what that frees, and how nothing is left in between."""
