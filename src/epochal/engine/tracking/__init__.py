"""Copies of points and media for other trackers."""
