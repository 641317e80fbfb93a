"""Experiments: builds parts from a config, and runs them."""
