"""A curve in one line of text."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from epochal.text.terminal import can_encode

if TYPE_CHECKING:
    from collections.abc import Sequence

_BARS = "▁▂▃▄▅▆▇█"
_PLAIN_BARS = "_.-~=+*#"
_NOT_A_NUMBER = "!"


def format_sparkline(
    steps: Sequence[float], values: Sequence[float], *, width: int, is_plain: bool | None = None
) -> str:
    """The curve in at most ``width`` characters, each the mean of an equal part of the steps.

    Args:
        steps: The steps of the values, ascending.
        values: One value per step; NaN and infinity are shown as ``!``.
        width: Maximum number of characters.
        is_plain: Use ASCII only; by default if the encoding of standard output lacks bars.
    """
    if not len(values):
        return ""
    bars = _PLAIN_BARS if (not can_encode(_BARS) if is_plain is None else is_plain) else _BARS
    means = _means(steps, values, width)
    finite = [one for one in means if one is not None and math.isfinite(one)]
    low, high = min(finite, default=0.0), max(finite, default=0.0)
    return "".join(_bar(one, low, high, bars) for one in means)


def _means(steps: Sequence[float], values: Sequence[float], width: int) -> list[float | None]:
    """The mean of each part of the steps; None for a part without values."""
    is_few = len(values) <= width
    width = min(width, len(values))
    first, last = steps[0], steps[-1]
    sums: list[list[float]] = [[] for _ in range(width)]
    for step, value in zip(steps, values, strict=True):
        share = (step - first) / (last - first) if last > first else 0.0
        # Few values get one bar each, even if the steps are not quite evenly spaced.
        place = round(share * (width - 1)) if is_few else min(width - 1, int(share * width))
        sums[place].append(value)
    return [_mean(one) for one in sums]


def _mean(values: list[float]) -> float | None:
    finite = [one for one in values if math.isfinite(one)]
    if finite:
        return math.fsum(one / len(finite) for one in finite)
    return math.nan if values else None


def _bar(value: float | None, low: float, high: float, bars: str) -> str:
    if value is None:
        return " "
    if not math.isfinite(value):
        return _NOT_A_NUMBER
    share = (value / 2 - low / 2) / (high / 2 - low / 2) if high > low else 0.0  # no overflow
    return bars[min(len(bars) - 1, int(share * len(bars)))]
