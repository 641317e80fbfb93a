"""A cache of the curves of a run on disk, verified by checksums on every read.

It is in the folder ``cache`` of the run, is extended as points are added, and may be deleted at
any time. A run with few points has none.
"""

from __future__ import annotations

from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar, final

import numpy as np

from epochal import durable
from epochal.durable.append import extend
from epochal.errors import RecordError
from epochal.records.layout.attempts import MAX_COUNT, find_valid_ranges, mask_ranges, read_attempts
from epochal.records.metrics.points import (
    POINT_BYTES,
    SMALL_FILE_BYTES,
    Points,
    count_valid_bytes,
    explain_unknown_metric,
    get_point_dtype,
    mask_valid_rows,
    read_metric_points,
    read_series_names,
)
from epochal.records.metrics.pyramid import (
    CacheDamagedError,
    Curve,
    InMemoryCurve,
    PyramidCurve,
    PyramidRoot,
    count_points,
    extend_pyramid,
    keep_last_per_step,
    reduce_blocks,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from pathlib import Path

    from numpy.typing import NDArray

    from epochal.records.metrics.points import Rows

    ValidRanges = dict[int, tuple[int, int]]

ReturnT = TypeVar("ReturnT")

CACHE_DIR = "cache"
CACHE_STATE_FILE = "series.json"
_CHUNK_ROWS = 1 << 20
_FORMAT = 2
_MIN_ENTRIES = 4
"""The minimum number of entries of a level in a bucket, if buckets may be uneven."""


class CacheUnusableError(Exception):
    """The cache cannot tell which points are current; all points must be read."""


@final
@dataclass
class CacheState:
    """The content of the cache's state file."""

    limits: ValidRanges
    """The current points of each attempt, see ``find_valid_ranges``."""

    rows: int = 0
    """How many rows of ``metrics.bin`` the cache covers."""

    crc: int = 0
    """The checksum of the last of these rows."""

    roots: dict[int, PyramidRoot] = field(default_factory=dict)
    """The root of each series, by its number."""


@final
class RunCurves:
    """The metrics of a run by name; ``find`` gives the curve of series that share a name."""

    def __init__(
        self,
        names: Mapping[int, str],
        find: Callable[[list[int]], Curve],
        *,
        is_stored: bool = False,
    ) -> None:
        self._numbers: dict[str, list[int]] = {}
        for number, name in names.items():
            self._numbers.setdefault(name, []).append(number)
        self._find = find
        self._curves: dict[str, Curve] = {}
        self.is_stored = is_stored
        """Whether the curves are on disk, so that only parts of them are in memory."""

    @property
    def num_bytes(self) -> int:
        """The memory that parts of stored curves use."""
        found = [*self._curves.values()]
        return sum(one.num_bytes for one in found if isinstance(one, PyramidCurve))

    @property
    def names(self) -> list[str]:
        """All metrics, in the order of their first points."""
        return list(self._numbers)

    def get(self, name: str) -> Curve:
        """The curve of one metric; raises RecordError if there is none."""
        if name not in self._numbers:
            raise RecordError(explain_unknown_metric(name, self.names))
        if name not in self._curves:
            self._curves[name] = self._find(self._numbers[name])
        return self._curves[name]


def query_curves(
    folder: Path,
    ask: Callable[[RunCurves], ReturnT],
    progress: Callable[[str], None] | None = None,
) -> ReturnT:
    """What ``ask`` returns for the current metrics of the run in ``folder``.

    ``ask`` may be called twice and must not keep the curves, which are valid only during the call.
    ``progress`` receives messages while new points are added to the cache.
    """
    with suppress(OSError, CacheUnusableError):  # not writable, or there are no points
        if (folder / "metrics.bin").stat().st_size > SMALL_FILE_BYTES:
            for is_new in (False, True):
                with suppress(CacheDamagedError), _locked_cache(folder / CACHE_DIR):
                    return ask(_cached(folder, progress, is_new=is_new))
    points = read_metric_points(folder)
    return ask(RunCurves(points.names, lambda numbers: _in_memory_curve(points, numbers)))


def build_curve_cache(folder: Path, progress: Callable[[str], None]) -> None:
    """Build the cache of a long run, which takes seconds for millions of points."""
    with suppress(OSError):
        if (folder / "metrics.bin").stat().st_size > SMALL_FILE_BYTES:
            query_curves(folder, lambda curves: None, progress)


def _in_memory_curve(points: Points, numbers: list[int]) -> InMemoryCurve:
    return InMemoryCurve(*points.series_of(numbers))


@contextmanager
def _locked_cache(cache: Path) -> Iterator[None]:
    """Lock out other processes of this machine and other threads."""
    durable.make_inner_dir(cache)
    with durable.locked(cache) as is_locked:
        if not is_locked:
            raise CacheUnusableError
        yield


def _cached(folder: Path, progress: Callable[[str], None] | None, *, is_new: bool) -> RunCurves:
    """The curves on disk, extended by all new points."""
    state = CacheState(_read_valid_ranges(folder)) if is_new else _read_state(folder)
    _append_new_points(folder, state, progress or (lambda text: None))

    def find(numbers: list[int]) -> Curve:
        if len(numbers) > 1:  # a damaged name was written again
            raise CacheUnusableError
        return PyramidCurve(
            _series_path(folder, numbers[0]), state.roots.get(numbers[0], PyramidRoot())
        )

    return RunCurves(read_series_names(folder)[0], find, is_stored=True)


def _read_valid_ranges(folder: Path) -> ValidRanges:
    known = read_attempts(durable.find_object(folder / "run.json"))
    return find_valid_ranges({}, known) if known else {0: (MAX_COUNT, MAX_COUNT)}


def _series_path(folder: Path, series: int) -> Path:
    return folder / CACHE_DIR / str(series)


def _read_state(folder: Path) -> CacheState:
    """The state of the cache; empty if it does not match the points."""
    limits = _read_valid_ranges(folder)
    try:
        found: Any = durable.decode_line(durable.read_bytes(folder / CACHE_DIR / CACHE_STATE_FILE))
        roots = {int(number): PyramidRoot(*root) for number, root in found["roots"].items()}
        listed = {int(number): tuple(limit) for number, limit in found["limits"].items()}
        state = CacheState(limits, found["rows"], found["crc"], roots)
    except (OSError, KeyError, TypeError, ValueError, AttributeError):
        return CacheState(limits)
    last = _read_rows(folder, max(0, state.rows - 1), state.rows)["crc"].tolist()
    is_same = not state.rows or last == [state.crc]
    fits = is_same and listed == limits and found.get("format") == _FORMAT
    return state if fits else CacheState(limits)


def _read_rows(folder: Path, start: int, end: int) -> Rows:
    """The rows from ``start`` to ``end`` that the file has."""
    count, offset = max(0, end - start), start * POINT_BYTES
    with durable.open_regular(folder / "metrics.bin") as file:
        return np.fromfile(file, get_point_dtype(), count, offset=offset)


def _append_new_points(folder: Path, state: CacheState, progress: Callable[[str], None]) -> None:
    """Add new points to the cache."""
    end = count_valid_bytes(folder / "metrics.bin") // POINT_BYTES
    if end == state.rows:
        return
    for start in range(state.rows, end, _CHUNK_ROWS):
        progress(f"{start:,} of {end:,} points sorted for charts")
        chunk = _read_rows(folder, start, min(end, start + _CHUNK_ROWS))
        whole = mask_valid_rows(chunk)
        numbers = set(np.unique(chunk["attempt"][whole]).tolist())
        if not numbers <= _known_attempts(folder, state.limits):
            raise CacheUnusableError
        current = whole & mask_ranges(chunk["attempt"], chunk["step"], state.limits, start=start)
        _append_rows(folder, state, chunk if current.all() else chunk[current])
        state.rows, state.crc = start + len(chunk), int(chunk["crc"][-1])
    _write_state(folder, state)


def _known_attempts(folder: Path, limits: ValidRanges) -> set[int]:
    """The attempts whose current points are known."""
    known = read_attempts(durable.find_object(folder / "run.json"))
    return {*limits, *(one.attempt for one in known)}


def _append_rows(folder: Path, state: CacheState, rows: Rows) -> None:
    """Add current rows to the curves of their series."""
    if not len(rows):
        return
    series = np.ascontiguousarray(rows["series"])
    order = np.argsort(series, kind="stable")
    numbers, starts = np.unique(series[order], return_index=True)
    for number, own in zip(numbers.tolist(), np.split(order, starts[1:]), strict=True):
        steps = rows["step"][own].astype(np.int64)
        steps, values = keep_last_per_step(steps, rows["value"][own].astype(np.float64))
        root = state.roots.get(number, PyramidRoot())
        state.roots[number] = extend_pyramid(_series_path(folder, number), root, steps, values)


def _write_state(folder: Path, state: CacheState) -> None:
    facts = {
        "format": _FORMAT,
        "rows": state.rows,
        "crc": state.crc,
        "limits": {str(number): limit for number, limit in state.limits.items()},
        "roots": {str(number): (root.count, root.crc) for number, root in state.roots.items()},
    }
    extend(folder / CACHE_DIR / CACHE_STATE_FILE, 0, durable.encode_line(facts))


_EXACT = 2**62
"""Below it, sums of integers are exact in 64 bits."""

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
    *,
    is_even: bool = True,
) -> Zoom:
    """A metric of the run in ``folder`` from step ``first`` to ``last``, both included.

    Args:
        folder: The folder of the run.
        name: The metric.
        first: The first step; by default that of the curve.
        last: The last step; by default that of the curve.
        buckets: The maximum number of buckets, which cover equally many steps.
        progress: Receives messages while a long curve is read for the first time.
        is_even: Whether buckets of a long curve end exactly where they should. If not, they may
            end up to a quarter of their points later, the first and the last one may reach beyond
            the range as far, and much less is read.
    """
    if buckets < 1:
        raise ValueError(f"buckets: must be at least 1, got {buckets!r}")

    def ask(curves: RunCurves) -> Zoom:
        return zoom_curve(curves.get(name), first, last, buckets, is_even=is_even)

    return query_curves(folder, ask, progress)


def zoom_curve(
    curve: Curve, first: int | None, last: int | None, buckets: int, *, is_even: bool
) -> Zoom:
    """The same for a curve of ``query_curves``."""
    first = None if first is None or first <= MIN_STEP else first
    last = None if last is None or last >= MAX_STEP else last
    if not is_even and isinstance(curve, PyramidCurve):
        found = _zoom_entries(curve, first, last, buckets)
        if found is not None:
            return found
    bounds = (MIN_STEP if first is None else first, MAX_STEP if last is None else last + 1)
    limited = [min(max(step, MIN_STEP), MAX_STEP) for step in bounds]
    places = curve.count_before(np.array(limited, np.int64)).tolist()
    start = 0 if first is None else places[0]
    end = curve.count if last is None else places[1]
    if end - start <= buckets:
        steps, values = curve.read(start, max(start, end))
        return Zoom(steps, values, values, values, np.ones(len(steps), np.int64))
    is_stored = isinstance(curve, PyramidCurve)
    if is_stored and end - start <= 2 * count_points(1) * buckets:
        # Nearly all points are needed: read them at once.
        curve, start, end = InMemoryCurve(*curve.read(start, end)), 0, end - start
    reached = curve.steps_at(np.array([start, end - 1])).tolist()
    first = reached[0] if first is None else first
    span = (reached[1] if last is None else last) + 1 - first
    edges = _split_evenly(first, span, buckets)
    starts, ends = _split_at(start, curve.count_before(edges), end)
    return _to_zoom(curve.steps_at(starts), curve.reduce_ranges(starts, ends), ends - starts)


def _split_evenly(first: int, span: int, buckets: int) -> NDArray[np.int64]:
    """The first steps of all buckets but the first."""
    if abs(first) < _EXACT and span * buckets < _EXACT:
        return first + span * np.arange(1, buckets) // buckets
    return np.array([first + span * i // buckets for i in range(1, buckets)], np.int64)


def _split_at(
    start: int, places: NDArray[np.int64], end: int
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The starts and ends of the ranges between places that are not empty."""
    bounds = np.concatenate(([start], places, [end]))
    is_there = bounds[1:] > bounds[:-1]
    return bounds[:-1][is_there], bounds[1:][is_there]


def _to_zoom(steps: NDArray[np.int64], found: NDArray[np.void], count: NDArray[np.int64]) -> Zoom:
    with np.errstate(invalid="ignore", divide="ignore"):  # a bucket of NaN has no mean
        mean = found["total"] / found["count"]
    return Zoom(steps, found["low"], found["high"], mean, count)


def _zoom_entries(
    curve: PyramidCurve, first: int | None, last: int | None, buckets: int
) -> Zoom | None:
    """Buckets of whole entries of the highest level that has enough; None if only points do."""
    bounds = np.array(
        [MIN_STEP if first is None else first, MAX_STEP - 1 if last is None else last]
    )
    for level, found in curve.descend(bounds + 1) if curve.count else ():
        start = max(0, int(found[0]) - 1)
        if level and int(found[1]) - start >= _MIN_ENTRIES * buckets:
            return _zoom_blocks(curve, level, start, int(found[1]), first, last, buckets)
    return None


def _zoom_blocks(
    curve: PyramidCurve,
    level: int,
    start: int,
    end: int,
    first: int | None,
    last: int | None,
    buckets: int,
) -> Zoom:
    rows, size = curve.rows(level, start, end), count_points(level)
    firsts = rows["step"].astype(np.int64)
    first = int(firsts[0]) if first is None else first
    last = int(curve.steps_at(np.array([curve.count - 1]))[0]) if last is None else last
    edges = _split_evenly(first, last + 1 - first, buckets)
    starts, ends = _split_at(0, np.searchsorted(firsts, edges), len(rows))
    count = np.minimum((start + ends) * size, curve.count) - (start + starts) * size
    return _to_zoom(firsts[starts], reduce_blocks(rows, starts, ends), count)
