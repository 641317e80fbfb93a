"""Compares runs: parameters, code, packages, hardware, data, metrics and curves."""

from epochal.records.compare.comparison import SECTIONS, Comparison, describe_differences, diff

__all__ = ["SECTIONS", "Comparison", "describe_differences", "diff"]
