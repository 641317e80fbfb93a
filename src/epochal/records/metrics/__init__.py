"""Metric points, series and summaries."""
