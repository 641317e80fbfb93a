"""Numbers, times and rates as text of nearly constant width."""

from __future__ import annotations

import math
import re
from datetime import timedelta


def format_progress(index: int, total: int | None) -> str:
    """``index/total`` with the index padded, so that the text keeps its width."""
    return f"{index}" if total is None else f"{index:>{len(str(total))}}/{total}"


def format_number(value: float) -> str:
    """Five digits where possible, else scientific notation.

    >>> format_number(0.34123), format_number(-12.5), format_number(3.4e-7)
    ('0.3412', '-12.500', '3.40e-07')
    """
    size = abs(value)
    if not math.isfinite(value):
        return str(value)
    if size >= 9999.95 or 0 < size < 1e-3:
        return f"{value:.2e}"
    return f"{value:.4f}" if size < 1 else f"{value:#.5g}"


def format_clock(seconds: float | None) -> str:
    """Hours, minutes and seconds, after the days if there are any.

    >>> format_clock(62), format_clock(90_000), format_clock(None)
    ('0:01:02', '1d 1:00:00', '-:--:--')
    """
    if seconds is None or not math.isfinite(seconds):
        return "-:--:--"
    return re.sub(r" days?, ", "d ", str(timedelta(seconds=max(0, round(seconds)))))


def format_duration(seconds: float) -> str:
    """A short time with its unit, in three digits.

    >>> format_duration(0.0351), format_duration(2.5), format_duration(75.04), format_duration(4000)
    ('35 ms', '2.50 s', '75.0 s', '1:06:40')
    """
    if seconds >= 999.5:
        return format_clock(seconds)
    if seconds < 0.9995:
        return f"{max(seconds, 0) * 1000:.0f} ms"
    return f"{seconds:.2f} s" if seconds < 9.995 else f"{seconds:.1f} s"


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
