"""Numbers, times and speeds as text whose width hardly changes."""

from __future__ import annotations

import math

DAY_SECONDS = 86_400


def show_number(value: float) -> str:
    """Six characters where they say something, else powers of ten.

    >>> show_number(0.34123), show_number(-12.5), show_number(3.4e-7)
    ('0.3412', '-12.500', '3.40e-07')
    """
    size = abs(value)
    if not math.isfinite(value):
        return str(value)
    if size >= 9999.95 or 0 < size < 1e-3:
        return f"{value:.2e}"
    # Limits lie where rounding would add a digit.
    decimals = next(
        count
        for limit, count in ((9.99995, 4), (99.9995, 3), (999.995, 2), (9999.95, 1))
        if size < limit
    )
    return f"{value:.{decimals}f}"


def show_time(seconds: float | None) -> str:
    """Hours, minutes and seconds; days in front when there are any.

    >>> show_time(62), show_time(90_000), show_time(None)
    ('0:01:02', '1d 1:00:00', '-:--:--')
    """
    if seconds is None or not math.isfinite(seconds):
        return "-:--:--"
    days, rest = divmod(max(0, round(seconds)), DAY_SECONDS)
    text = f"{rest // 3600}:{rest // 60 % 60:02}:{rest % 60:02}"
    return f"{days}d {text}" if days else text


def show_seconds(seconds: float) -> str:
    """A short time with its unit, in three digits.

    >>> show_seconds(0.0351), show_seconds(2.5), show_seconds(75.04), show_seconds(4000)
    ('35 ms', '2.50 s', '75.0 s', '1:06:40')
    """
    if seconds >= 999.5:
        return show_time(seconds)
    if seconds < 0.9995:
        return f"{max(seconds, 0) * 1000:.0f} ms"
    return f"{seconds:.2f} s" if seconds < 9.995 else f"{seconds:.1f} s"


def show_rate(per_second: float) -> str:
    """A speed in at most five characters.

    >>> show_rate(0.25), show_rate(48.21), show_rate(12_345), show_rate(2.5e6)
    ('0.25', '48.2', '12.3k', '2.50M')
    """
    if not math.isfinite(per_second) or per_second >= 1e12:
        return "-"
    for limit, letter in ((1e3, ""), (1e6, "k"), (1e9, "M"), (1e12, "G")):
        scaled = per_second / (limit / 1e3)
        # 999.6 would round to four digits; the next letter takes it.
        if scaled < 999.5:
            decimals = 2 if scaled < 9.995 else 1 if scaled < 99.95 else 0
            return f"{scaled:.{decimals}f}{letter}"
    return "-"
