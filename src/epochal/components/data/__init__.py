"""Data: from a dataset to batches."""
