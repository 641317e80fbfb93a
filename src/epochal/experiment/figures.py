"""Numbers with their units, as people say them."""

from __future__ import annotations

from epochal.records.figures import format_seconds as format_seconds
from epochal.records.figures import format_value as format_value


def format_count(count: int, noun: str) -> str:
    """A number with its noun: ``1 step``, ``12 steps``."""
    return f"{count:,} {noun}" + "s" * (count != 1)
