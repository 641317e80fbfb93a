"""Frozen jobs: experiments with their config and code as they were when they were submitted."""
