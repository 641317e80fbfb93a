"""Averages of weights: EMA and SWA."""
