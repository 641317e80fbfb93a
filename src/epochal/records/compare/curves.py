"""Where the curves of two runs part: bit for bit, and by more than a tolerance."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, final

from epochal.records.metrics.points import TRAIN_PREFIX, is_step_mean

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy as np
    from numpy.typing import NDArray

    from epochal.records.folder.record import RunRecord

    SeriesArrays = tuple[NDArray[np.int64], NDArray[np.float64]]

TOLERANCE = 0.01
"""By what share of the larger value two values may differ and still count as close."""

_MACHINE_DEPENDENT = re.compile(
    r"(^|[/_. ])(time|seconds|memory|throughput|speed|rate|per_second|gpu\w*|util\w*)($|[/_. ])"
)
"""Names of what depends on the machine and its moods, and never is the same twice."""


@final
@dataclass(frozen=True, slots=True)
class Divergence:
    """The first step after which two runs do not show the same."""

    step: int
    names: tuple[str, ...]
    """The series that differ there, the most telling first."""

    values: tuple[float, float]
    """What the first of these series shows in each run."""


@final
@dataclass(frozen=True, kw_only=True, slots=True)
class CurveComparison:
    """The curves of two runs, laid over each other at the steps that both recorded."""

    num_series: int
    """How many series were compared."""

    num_points: int
    """At how many points, over all series."""

    bitwise: Divergence | None
    """Where the first bit differs; None if none does."""

    beyond: Divergence | None
    """Where they differ by more than the tolerance; None if they never do."""

    same_until: int | None
    """The last common step before the first difference; None if there is none."""

    num_uneven: int = 0
    """How many points of training more both have at one step, but as means over other steps."""

    left_out: tuple[str, ...] = ()
    """Series that measure the machine and were not compared."""

    resumed: tuple[tuple[int, ...], tuple[int, ...]] = ((), ())
    """The steps at or before the parting from which each run went on or to which it went back."""


def compare_curves(
    one: RunRecord, other: RunRecord, *, tolerance: float = TOLERANCE
) -> CurveComparison:
    """Where two runs part; only what still counts of each is looked at, not redone attempts.

    Args:
        one: A run.
        other: Another one.
        tolerance: Share of the larger of two values by which they may differ.
    """
    monitor = one.run.get("monitor")
    shared = sorted(
        {*one.metric_names()} & {*other.metric_names()},
        # The most telling first: what decides, then what training itself shows.
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
    resumed = (_restarts(one, bitwise), _restarts(other, bitwise))
    return CurveComparison(
        num_series=len(merged),
        num_points=sum(len(steps) for steps, _, _ in merged.values()),
        bitwise=bitwise,
        beyond=None if bitwise is None else _find_divergence(merged, tolerance),
        same_until=_last_before(merged, bitwise),
        num_uneven=num_uneven,
        left_out=tuple(name for name in shared if name not in names),
        resumed=resumed,
    )


_AlignedSeries = tuple["NDArray[np.int64]", "NDArray[np.float64]", "NDArray[np.float64]"]


def _align_series(
    one: SeriesArrays, other: SeriesArrays, *, is_mean: bool
) -> tuple[_AlignedSeries, int]:
    """What both have at the steps that both recorded, and how many points cannot be compared.

    Means can be if they are over the same steps: if the points before them are at one step, too.
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
    """The earliest step at which any series differs by more than a tolerance; 0 is bit for bit."""
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
        apart = np.abs(here - there)
        close = apart <= tolerance * np.maximum(np.abs(here), np.abs(there))
    same = (close & np.isfinite(apart)) | (here == there) | (np.isnan(here) & np.isnan(there))
    differs: NDArray[np.bool_] = other_bits & ~same
    return differs


def _last_before(merged: dict[str, _AlignedSeries], parting: Divergence | None) -> int | None:
    lasts = []
    for steps, _, _ in merged.values():
        before = steps if parting is None else steps[steps < parting.step]
        lasts += [int(before[-1])] if len(before) else []
    return max(lasts, default=None)


def _restarts(record: RunRecord, parting: Divergence | None) -> tuple[int, ...]:
    steps: Sequence[int] = [one.step for one in record.attempts if one.checkpoint]
    return tuple(step for step in steps if parting is not None and step <= parting.step)
