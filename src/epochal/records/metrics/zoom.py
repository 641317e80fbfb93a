"""Reduces a range of a curve to buckets with minimum, maximum and mean, for charts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, final

import numpy as np

from epochal.records.metrics.curve_cache import query_curves

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from numpy.typing import NDArray

    from epochal.records.metrics.curve_cache import RunCurves
    from epochal.records.metrics.pyramid import Curve

MIN_STEP, MAX_STEP = -(2**63), 2**63 - 1


@final
@dataclass(frozen=True, slots=True)
class Zoom:
    """The buckets that have points, by step; with few points, one bucket each."""

    steps: NDArray[np.int64]
    """The first step with a point in each bucket."""

    low: NDArray[np.float64]
    """The exact minimum; NaN if all values are, as for ``high`` and ``mean``."""

    high: NDArray[np.float64]
    mean: NDArray[np.float64]
    count: NDArray[np.int64]
    """The number of points, NaN included."""


def zoom(
    folder: Path,
    name: str,
    first: int | None = None,
    last: int | None = None,
    buckets: int = 1000,
    progress: Callable[[str], None] | None = None,
) -> Zoom:
    """A metric of the run in ``folder`` from step ``first`` to ``last``, both included.

    Args:
        folder: The folder of the run.
        name: The metric.
        first: The first step; by default that of the curve.
        last: The last step; by default that of the curve.
        buckets: The maximum number of buckets, which cover equally many steps.
        progress: Receives messages while a long curve is read for the first time.
    """
    if buckets < 1:
        raise ValueError(f"buckets: must be at least 1, got {buckets!r}")

    def ask(curves: RunCurves) -> Zoom:
        return _zoom(curves.get(name), first, last, buckets)

    return query_curves(folder, ask, progress)


def _count_before(curve: Curve, step: int) -> int:
    step = min(max(step, MIN_STEP), MAX_STEP)
    return int(curve.count_before(np.array([step], np.int64))[0])


def _zoom(curve: Curve, first: int | None, last: int | None, buckets: int) -> Zoom:
    first = None if first is None or first <= MIN_STEP else first
    last = None if last is None or last >= MAX_STEP else last
    start = 0 if first is None else _count_before(curve, first)
    end = curve.count if last is None else _count_before(curve, last + 1)
    if end - start <= buckets:
        steps, values = curve.read(start, max(start, end))
        return Zoom(steps, values, values, values, np.ones(len(steps), np.int64))
    reached = curve.steps_at(np.array([start, end - 1])).tolist()
    first = reached[0] if first is None else first
    span = (reached[1] if last is None else last) + 1 - first
    edges = np.array([first + span * i // buckets for i in range(1, buckets)], np.int64)
    bounds = np.concatenate(([start], curve.count_before(edges), [end]))
    starts, ends = bounds[:-1], bounds[1:]
    is_there = ends > starts
    starts, ends = starts[is_there], ends[is_there]
    found = curve.reduce_ranges(starts, ends)
    with np.errstate(invalid="ignore", divide="ignore"):  # a bucket of NaN has no mean
        mean = found["total"] / found["count"]
    return Zoom(curve.steps_at(starts), found["low"], found["high"], mean, ends - starts)
