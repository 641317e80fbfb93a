"""Blocks of a curve: the extremes of many pieces of it at once."""

from __future__ import annotations

from functools import reduce as fold
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Steps = NDArray[np.int64]
    Values = NDArray[np.float64]
    Entries = NDArray[np.void]

ENTRY = np.dtype(
    [
        ("step", "<i8"),
        ("low", "<f8"),
        ("high", "<f8"),
        ("total", "<f8"),
        ("count", "<i8"),
        ("crc", "<u4"),
    ]
)
"""Of some points: the first step; extremes, sum and number of those values that are not NaN.

Without such a value the extremes are NaN. ``crc`` is for whoever keeps entries on disk.
"""

_COLUMNS = ("step", "low", "high", "total", "count")

EMPTY = np.array((0, np.nan, np.nan, 0.0, 0, 0), ENTRY)


def reduce(entries: Entries, starts: Steps, ends: Steps) -> Entries:
    """One entry for each piece; the entries of the pieces lie one after the other.

    Args:
        entries: What the pieces are made of, and nothing else.
        starts: Where each piece begins, counted as the caller likes.
        ends: Where it ends.
    """
    return _reduce_columns({name: entries[name] for name in _COLUMNS}, starts, ends)


def reduce_points(steps: Steps, values: Values, starts: Steps, ends: Steps) -> Entries:
    """The same of pieces that are made of points."""
    is_number = ~np.isnan(values)
    known = values if is_number.all() else np.where(is_number, values, 0.0)
    columns = (steps, values, values, known, is_number.astype(np.int64))
    return _reduce_columns(dict(zip(_COLUMNS, columns, strict=True)), starts, ends)


def _reduce_columns(columns: dict[str, NDArray[Any]], starts: Steps, ends: Steps) -> Entries:
    is_there = ends > starts
    lengths = (ends - starts)[is_there]
    offsets = np.cumsum(lengths) - lengths
    found = np.zeros(len(offsets), ENTRY)
    if len(offsets):
        found["step"] = columns["step"][offsets]
        found["low"] = np.fmin.reduceat(columns["low"], offsets)
        found["high"] = np.fmax.reduceat(columns["high"], offsets)
        found["count"] = np.add.reduceat(columns["count"], offsets)
        with np.errstate(invalid="ignore", over="ignore"):  # infinite values have no sum
            found["total"] = np.add.reduceat(columns["total"], offsets)
    return spread(found, is_there)


def spread(found: Entries, places: NDArray[np.bool_]) -> Entries:
    """The same entries at some places of a longer row, and empty ones at the others."""
    row = np.full(len(places), EMPTY)
    row[places] = found
    return row


def merge(*several: Entries) -> Entries:
    """Entry by entry the extremes of all; the step is that of the first."""
    return fold(_merge, several)


def _merge(left: Entries, right: Entries) -> Entries:
    found = left.copy()
    found["low"] = np.fmin(left["low"], right["low"])
    found["high"] = np.fmax(left["high"], right["high"])
    found["count"] += right["count"]
    with np.errstate(invalid="ignore", over="ignore"):
        found["total"] += right["total"]
    return found


def flatten(starts: Steps, ends: Steps) -> Steps:
    """All positions of some pieces, one after the other."""
    lengths = ends - starts
    return np.repeat(starts - (np.cumsum(lengths) - lengths), lengths) + np.arange(lengths.sum())


def keep_last(steps: Steps, values: Values) -> tuple[Steps, Values]:
    """Points by step, of which the last word for each step counts."""
    if (steps[1:] > steps[:-1]).all():
        return steps, values
    steps, from_end = np.unique(steps[::-1], return_index=True)
    return steps, values[::-1][from_end]
