"""Collects, restores and saves the state of a run."""
