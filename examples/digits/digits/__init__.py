"""Handwritten digits: a first experiment that trains in seconds on a CPU."""
