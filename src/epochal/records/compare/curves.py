"""Finds the step at which the curves of two runs diverge: bitwise, and beyond a tolerance."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, final

from epochal.records.metrics.points import TRAIN_PREFIX, is_step_mean

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy as np
    from numpy.typing import NDArray

    from epochal.records.folder.reader import RunRecord

    SeriesArrays = tuple[NDArray[np.int64], NDArray[np.float64]]

TOLERANCE = 0.01
"""Relative difference up to which values count as close."""

_MACHINE_DEPENDENT = re.compile(
    r"(^|[/_. ])(time|seconds|memory|throughput|speed|rate|per_second|gpu\w*|util\w*)($|[/_. ])"
)
"""Names of measurements of the machine, which differ in every run."""


@final
@dataclass(frozen=True, slots=True)
class Divergence:
    """The first step at which two runs differ."""

    step: int
    names: tuple[str, ...]
    """The series that differ there, the most relevant first."""

    values: tuple[float, float]
    """The values of the first of these series in each run."""


@final
@dataclass(frozen=True, kw_only=True, slots=True)
class CurveComparison:
    """The curves of two runs, compared at the steps that both recorded."""

    num_series: int
    """The number of compared series."""

    num_points: int
    """The number of compared points of all series."""

    bitwise: Divergence | None
    """The first difference of any bit; None if there is none."""

    beyond: Divergence | None
    """The first difference beyond the tolerance; None if there is none."""

    same_until: int | None
    """The last common step before the first difference; None without one."""

    num_uneven: int = 0
    """Points of training that were not compared, because they are means over different steps."""

    left_out: tuple[str, ...] = ()
    """Series that measure the machine, which were not compared."""

    resumed: tuple[tuple[int, ...], tuple[int, ...]] = ((), ())
    """The steps up to the divergence from which each run was resumed or rolled back."""


def compare_curves(
    one: RunRecord, other: RunRecord, *, tolerance: float = TOLERANCE
) -> CurveComparison:
    """Where two runs diverge, without replaced points; ``tolerance`` is a relative difference."""
    monitor = one.run.get("monitor")
    shared = sorted(
        {*one.metric_names()} & {*other.metric_names()},
        # The most relevant first: the monitored metric, then those of training.
        key=lambda name: (
            name != monitor,
            name != "train/loss",
            not name.startswith(TRAIN_PREFIX),
            name,
        ),
    )
    names = [name for name in shared if not _MACHINE_DEPENDENT.search(name)]
    merged, num_uneven = {}, 0
    for name in names:
        series = one.series(name), other.series(name)
        curve, uneven = _align_series(*series, is_mean=is_step_mean(name))
        num_uneven += uneven
        if len(curve[0]):
            merged[name] = curve
    bitwise = _find_divergence(merged, 0.0)
    resumed = (_list_resume_steps(one, bitwise), _list_resume_steps(other, bitwise))
    return CurveComparison(
        num_series=len(merged),
        num_points=sum(len(steps) for steps, _, _ in merged.values()),
        bitwise=bitwise,
        beyond=None if bitwise is None else _find_divergence(merged, tolerance),
        same_until=_last_equal(merged, bitwise),
        num_uneven=num_uneven,
        left_out=tuple(name for name in shared if name not in names),
        resumed=resumed,
    )


_AlignedSeries = tuple["NDArray[np.int64]", "NDArray[np.float64]", "NDArray[np.float64]"]


def _align_series(
    one: SeriesArrays, other: SeriesArrays, *, is_mean: bool
) -> tuple[_AlignedSeries, int]:
    """The values of both at their common steps, and the number of points that do not compare.

    Means compare only if they are over the same steps: the previous points have equal steps, too.
    """
    import numpy as np

    steps, here, there = np.intersect1d(one[0], other[0], assume_unique=True, return_indices=True)
    if not is_mean:
        return (steps, one[1][here], other[1][there]), 0
    before = [np.concatenate(([-1], curve[0][:-1])) for curve in (one, other)]
    is_even = before[0][here] == before[1][there]
    merged = steps[is_even], one[1][here[is_even]], other[1][there[is_even]]
    return merged, int((~is_even).sum())


def _find_divergence(merged: dict[str, _AlignedSeries], tolerance: float) -> Divergence | None:
    """The first step at which any series differs by more than a tolerance; 0 is bitwise."""
    found: dict[str, int] = {}
    for name, (_, here, there) in merged.items():
        places = _differs(here, there, tolerance).nonzero()[0]
        if len(places):
            found[name] = int(places[0])
    if not found:
        return None
    first = min(int(merged[name][0][place]) for name, place in found.items())
    names = tuple(name for name, place in found.items() if merged[name][0][place] == first)
    _, here, there = merged[names[0]]
    place = found[names[0]]
    return Divergence(first, names, (float(here[place]), float(there[place])))


def _differs(
    here: NDArray[np.float64], there: NDArray[np.float64], tolerance: float
) -> NDArray[np.bool_]:
    import numpy as np

    other_bits: NDArray[np.bool_] = here.view(np.int64) != there.view(np.int64)
    if not tolerance:
        return other_bits
    with np.errstate(invalid="ignore", over="ignore"):  # infinite, or not a number
        distance = np.abs(here - there)
        close = distance <= tolerance * np.maximum(np.abs(here), np.abs(there))
    same = (close & np.isfinite(distance)) | (here == there) | (np.isnan(here) & np.isnan(there))
    differs: NDArray[np.bool_] = other_bits & ~same
    return differs


def _last_equal(merged: dict[str, _AlignedSeries], divergence: Divergence | None) -> int | None:
    lasts = []
    for steps, _, _ in merged.values():
        before = steps if divergence is None else steps[steps < divergence.step]
        lasts += [int(before[-1])] if len(before) else []
    return max(lasts, default=None)


def _list_resume_steps(record: RunRecord, divergence: Divergence | None) -> tuple[int, ...]:
    steps: Sequence[int] = [one.step for one in record.attempts if one.checkpoint]
    return tuple(step for step in steps if divergence is not None and step <= divergence.step)
