"""Moves data to a device; number formats, memory and seeds."""
