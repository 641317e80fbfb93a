"""Summarises each metric of a run: last, lowest and highest value, last step, count."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, final

from epochal.records.metrics.points import SMALL_FILE_BYTES, read_metric_points

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    import numpy as np
    from numpy.typing import NDArray

    from epochal.records.metrics.curve_cache import RunCurves
    from epochal.records.metrics.points import Points


@final
@dataclass(frozen=True, slots=True)
class SeriesSummary:
    """One metric as a list of runs shows it, without replaced points."""

    last: float
    """The value at the last step, which may be NaN."""

    low: float
    """The lowest value; NaN only if all are."""

    high: float
    last_step: int
    count: int
    """The number of steps with a value."""


def summarise_series(folder: Path, *, uses_cache: bool = True) -> dict[str, SeriesSummary]:
    """The metrics of the run in ``folder`` that have valid points, by name."""
    with suppress(OSError):
        if uses_cache and (folder / "metrics.bin").stat().st_size > SMALL_FILE_BYTES:
            from epochal.records.metrics.curve_cache import query_curves

            return query_curves(folder, lambda curves: dict(_summarise(curves)))
    return summarise_points(read_metric_points(folder))


def _summarise(curves: RunCurves) -> Iterator[tuple[str, SeriesSummary]]:
    import numpy as np

    for name in curves.names:
        curve = curves.get(name)
        if count := curve.count:
            (whole,) = curve.reduce_ranges(np.array([0]), np.array([count]))
            steps, values = curve.read(count - 1, count)
            numbers = (float(values[0]), float(whole["low"]), float(whole["high"]))
            yield name, SeriesSummary(*numbers, int(steps[0]), count)


def summarise_points(points: Points) -> dict[str, SeriesSummary]:
    """The metrics of some points, by name."""
    import numpy as np

    names = list(dict.fromkeys(points.names.values()))
    places = {name: place for place, name in enumerate(names)}
    numbers = np.full(max(points.names, default=-1) + 1, -1)
    for series, name in points.names.items():
        numbers[series] = places[name]
    rows = points.rows[points.current & (points.rows["series"] < len(numbers))]
    owners = numbers[rows["series"]]
    rows, owners = rows[owners >= 0], owners[owners >= 0]
    if not len(rows):
        return {}
    steps = rows["step"].astype(np.int64)
    order = np.lexsort((np.arange(len(rows)), steps, owners))
    owners, steps, values = owners[order], steps[order], rows["value"][order].astype(np.float64)
    is_last_value = _is_last((owners, steps))
    owners, steps, values = (column[is_last_value] for column in (owners, steps, values))
    ends = np.flatnonzero(_is_last((owners,)))
    starts = np.concatenate(([0], ends[:-1] + 1))
    columns = (
        values[ends],
        np.fmin.reduceat(values, starts),
        np.fmax.reduceat(values, starts),
        steps[ends],
        ends + 1 - starts,
    )
    found = zip(*(column.tolist() for column in columns), strict=True)
    known = [names[owner] for owner in owners[ends]]
    return {name: SeriesSummary(*one) for name, one in zip(known, found, strict=True)}


def _is_last(keys: tuple[NDArray[np.int64], ...]) -> NDArray[np.bool_]:
    """A mask of the last entry of each group of equal, sorted keys."""
    import numpy as np

    differs = np.zeros(len(keys[0]), dtype=bool)
    differs[-1] = True
    for key in keys:
        differs[:-1] |= key[1:] != key[:-1]
    return differs
