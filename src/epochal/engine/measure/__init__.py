"""Sums, meters and clocks of a run."""
