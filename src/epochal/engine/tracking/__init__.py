"""Trackers: copy points and media of a run to other tools."""
