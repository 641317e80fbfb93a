"""Copies of a run's state that can be restored in the same process."""
