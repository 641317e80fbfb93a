"""Metrics of an evaluation, besides the task's own."""
