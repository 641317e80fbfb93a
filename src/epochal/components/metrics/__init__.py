"""Metrics: what an evaluation measures beside the task's own numbers."""
