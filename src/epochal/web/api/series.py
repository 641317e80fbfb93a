"""Curves of metrics: minimum, maximum and mean of each bucket, so that no spike is hidden."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, final

from epochal import durable
from epochal.records.folder.reader import read_folder
from epochal.records.layout.attempts import read_attempts
from epochal.records.layout.coerce import as_count
from epochal.records.metrics.points import POINT_BYTES, get_point_dtype, mask_valid_rows
from epochal.web.site.api_error import not_found
from epochal.web.site.numbers import pack_numbers, to_json_numbers

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    import numpy as np
    from numpy.typing import NDArray

    from epochal.records.metrics.curve_cache import Zoom
    from epochal.web.site.route import ApiCall
    from epochal.web.site.site import Site

Axis = Literal["step", "epoch", "time"]
AXES: tuple[Axis, ...] = ("step", "epoch", "time")
MAX_BUCKETS = 4000
MAX_CURVES = 500
SPARK_POINTS = 32
_MAX_SAMPLES = 20_000


def get_series(site: Site, call: ApiCall) -> dict[str, Any]:
    """Curves of one run, or of several; names that a run lacks are left out."""
    runs = [call.path["id"]] if "id" in call.path else call.query["run"]
    names = call.query["name"]
    if len(runs) * len(names) > MAX_CURVES:
        raise not_found()
    return {"series": read_series(site, site.folders(runs), names, call.query)}


def read_series(
    site: Site, folders: Mapping[str, Path], names: Sequence[str], query: Mapping[str, Any]
) -> list[dict[str, Any]]:
    """The curves of some metrics; ``query`` has axis, number of points, and maybe a range."""
    found = []
    for run, folder in folders.items():
        scale = StepScale(folder, query["x"])
        attempts = _find_attempts(folder, scale)
        curves = _read_curves(site, folder, scale, names, query) if scale.is_known else {}
        for name, curve in curves.items():
            found.append({"run": run, "name": name, **curve, "attempts": attempts})
    return found


@final
class StepScale:
    """Converts steps to epochs or seconds since the first point of a run, and back."""

    def __init__(self, folder: Path, axis: Axis) -> None:
        import numpy as np

        self.axis = axis
        self._steps = self._marks = np.zeros(0)
        if axis == "time":
            self._steps, self._marks = _sample_times(folder)
        elif axis == "epoch":
            status = durable.find_object(folder / "status.json")
            step, epoch = as_count(status.get("step")), as_count(status.get("epoch"))
            if step > 0 and epoch > 0:
                self._steps, self._marks = np.array([0.0, step]), np.array([0.0, epoch])

    @property
    def is_known(self) -> bool:
        """Whether the run says how steps relate to this axis."""
        return self.axis == "step" or len(self._steps) > 0

    def to_axis(self, steps: NDArray[np.int64]) -> NDArray[np.float64] | NDArray[np.int64]:
        """Where steps are on the axis."""
        import numpy as np

        if self.axis == "step":
            return steps
        if self.axis == "epoch":  # also beyond the last recorded status
            return steps.astype(np.float64) * float(self._marks[-1] / self._steps[-1])
        return np.asarray(np.interp(steps, self._steps, self._marks), np.float64)

    def to_step(self, value: float | None) -> int | None:
        """The step at a value of the axis."""
        import numpy as np

        if value is None or self.axis == "step":
            return None if value is None else int(value)
        if self.axis == "epoch":
            return int(value * self._steps[-1] / self._marks[-1])
        return int(np.interp(value, self._marks, self._steps))


def _sample_times(folder: Path) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Some steps of a run, ascending, and the seconds from its first point to each."""
    import numpy as np

    path, nothing = folder / "metrics.bin", (np.zeros(0), np.zeros(0))
    try:
        count = path.stat().st_size // POINT_BYTES
        if not count:
            return nothing
        rows = np.memmap(path, get_point_dtype(), "r", shape=(count,))
    except (OSError, ValueError):
        return nothing
    chosen = np.unique(np.linspace(0, count - 1, min(count, _MAX_SAMPLES)).astype(np.int64))
    sample = np.ascontiguousarray(rows[chosen])
    sample = sample[mask_valid_rows(sample)]
    if not len(sample):
        return nothing
    steps, last = np.unique(sample["step"][::-1], return_index=True)  # the last point of a step
    times = sample["time"][::-1][last]
    seconds = np.maximum.accumulate(times - sample["time"].min())
    return steps.astype(np.float64), seconds


def _read_curves(
    site: Site, folder: Path, scale: StepScale, names: Sequence[str], query: Mapping[str, Any]
) -> dict[str, Any]:
    """The curves of a run that it has, by name."""
    from epochal.records.metrics.curve_cache import RunCurves, zoom_curve

    first, last = scale.to_step(query.get("from")), scale.to_step(query.get("to"))

    def ask(curves: RunCurves) -> dict[str, Zoom]:
        return {
            name: zoom_curve(curves.get(name), first, last, query["points"], is_even=False)
            for name in dict.fromkeys(names)
            if name in curves.names
        }

    write = pack_numbers if query["packed"] else to_json_numbers
    curves = site.curves.query(folder, ask)
    return {name: _to_json(scale, found, write) for name, found in curves.items()}


def _to_json(scale: StepScale, found: Zoom, write: Callable[[Any], object]) -> dict[str, Any]:
    low, is_exact = write(found.low), bool((found.count <= 1).all())
    return {
        "x": write(scale.to_axis(found.steps)),
        "min": low,
        "max": write(found.high),
        "mean": low if is_exact else write(found.mean),
        "is_exact": is_exact,
        "count": int(found.count.sum()),
    }


def _find_attempts(folder: Path, scale: StepScale) -> list[float | None]:
    """Where attempts after the first one began."""
    import numpy as np

    attempts = read_attempts(durable.find_object(folder / "run.json")) if scale.is_known else []
    steps = [one.step for one in attempts if one.attempt]
    if not steps:
        return []
    return to_json_numbers(scale.to_axis(np.array(steps, np.int64)))


def get_sparklines(site: Site, call: ApiCall) -> dict[str, Any]:
    """A few points of one metric for each run that has it."""
    from epochal.records.metrics.curve_cache import RunCurves, zoom_curve

    name = call.query["name"]

    def ask(curves: RunCurves) -> list[float | None] | None:
        if name not in curves.names:
            return None
        found = zoom_curve(curves.get(name), None, None, SPARK_POINTS, is_even=False)
        return to_json_numbers(found.mean)

    folders = site.index.find_all(call.query["run"])
    found = {run: site.curves.query(folder, ask) for run, folder in folders.items()}
    return {run: points for run, points in found.items() if points is not None}


def get_system(site: Site, call: ApiCall) -> dict[str, Any]:
    """The use of CPU, memory, disk and GPUs over the seconds since the first sample."""
    import numpy as np

    figures = read_folder(site.folder(call.path["id"])).system
    series = []
    for name in figures.names:
        seconds, values = figures.series(name)
        edges = np.linspace(0, len(seconds), min(call.query["points"], len(seconds)) + 1)
        starts = np.unique(edges[:-1].astype(np.int64))
        counts = np.diff(np.append(starts, len(values)))
        series.append(
            {
                "name": name,
                "x": to_json_numbers(seconds[starts]),
                "min": to_json_numbers(np.minimum.reduceat(values, starts)),
                "max": to_json_numbers(np.maximum.reduceat(values, starts)),
                "mean": to_json_numbers(np.add.reduceat(values, starts) / counts),
                "is_exact": len(starts) == len(values),
                "count": len(values),
            }
        )
    return {"series": series}
