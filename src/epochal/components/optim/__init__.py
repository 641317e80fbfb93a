"""Optimization: how the learning rate moves over a run."""
