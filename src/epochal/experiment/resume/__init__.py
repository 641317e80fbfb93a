"""Decides whether a run can be resumed, and from which checkpoint."""
