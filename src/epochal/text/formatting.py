"""Formats numbers, durations, counts and sizes for people."""

from __future__ import annotations


def format_value(value: object) -> str:
    """A short text for a table cell: floats with four digits, empty for None."""
    if value is None:
        return ""
    if isinstance(value, float):
        return f"{value:.4g}"
    return str(value)


def format_seconds(seconds: float) -> str:
    """A duration in at most two units: ``12 s``, ``3 min 20 s``, ``2 h 5 min``, ``3 d 4 h``."""
    if seconds < 60:
        return f"{seconds:.1f} s" if seconds < 10 else f"{seconds:.0f} s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {rest} s"
    hours, minutes = divmod(minutes, 60)
    if hours < 24:
        return f"{hours} h {minutes} min"
    days, hours = divmod(hours, 24)
    return f"{days} d {hours} h"


def format_count(count: int, noun: str) -> str:
    """A number with its noun: ``1 step``, ``12 steps``, ``2 batches``, ``3 epochs``."""
    ending = "" if count == 1 else "es" if noun.endswith("tch") else "s"
    return f"{count:,} {noun}{ending}"


def format_bytes(size: float) -> str:
    """A number of bytes: ``12 B``, ``3.4 MB``."""
    for unit in ("B", "kB", "MB", "GB"):
        if size < 1000:
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1000
    return f"{size:.1f} TB"


def format_rate(per_second: float) -> str:
    """A speed in at most five characters.

    >>> format_rate(0.25), format_rate(48.21), format_rate(12_345), format_rate(2.5e6)
    ('0.25', '48.2', '12.3k', '2.50M')
    """
    for unit in ("", "k", "M", "G"):
        if per_second < 999.5:  # a larger number would round to four digits
            digits = f"{per_second:.2f}" if per_second < 1 else f"{per_second:#.3g}".rstrip(".")
            return digits + unit
        per_second /= 1000
    return "-"
