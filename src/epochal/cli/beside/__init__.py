"""Runs side by side, as text: what differs, how much more there is, and how to see it."""

from epochal.cli.beside.page import describe_comparison

__all__ = ["describe_comparison"]
