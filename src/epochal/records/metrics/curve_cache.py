"""The metrics of a run as columns: a cache beside its points, which is never simply believed.

It lies in the folder ``cache`` of the run, follows the points while they are written, and may be
deleted at any time. A run with few points has none.
"""

from __future__ import annotations

import os
import sys
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar, final

import numpy as np

from epochal import durable
from epochal.durable.append import extend
from epochal.errors import RecordError
from epochal.records.layout.attempts import MAX_COUNT, find_limits, read_attempts
from epochal.records.metrics.points import Points, explain_unknown, load_points, read_names
from epochal.records.metrics.pyramid import (
    Curve,
    DamagedError,
    Plain,
    Pyramid,
    Root,
    extend_pyramid,
    keep_last,
)
from epochal.records.metrics.row_format import (
    POINT_BYTES,
    SMALL_BYTES,
    find_good_bytes,
    find_whole,
    point_type,
)

if sys.platform != "win32":
    import fcntl

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from pathlib import Path

    from numpy.typing import NDArray

    from epochal.records.metrics.row_format import Rows

    Limits = dict[int, tuple[int, int]]

Answer = TypeVar("Answer")

FOLDER = "cache"
STATE = "series.json"
_CHUNK_ROWS = 1 << 20
_FORMAT = 1


class UncertainError(Exception):
    """Which points count can only be told by looking at all of them."""


@final
@dataclass
class State:
    """What is known of a cache."""

    limits: Limits
    """How far each attempt counts."""

    rows: int = 0
    """How many rows of ``metrics.bin`` are in it."""

    crc: int = 0
    """The checksum of the last of them."""

    roots: dict[int, Root] = field(default_factory=dict)
    """Of each series, by its number."""


@final
class Curves:
    """The metrics of a run by name.

    Args:
        names: Series number to metric name.
        find: The curve of some series that share a name.
    """

    def __init__(self, names: Mapping[int, str], find: Callable[[list[int]], Curve]) -> None:
        self._numbers: dict[str, list[int]] = {}
        for number, name in names.items():
            self._numbers.setdefault(name, []).append(number)
        self._find = find

    @property
    def names(self) -> list[str]:
        """All metrics, in the order of their first points."""
        return list(self._numbers)

    def get(self, name: str) -> Curve:
        """One metric; raises RecordError when there is no such."""
        if name not in self._numbers:
            raise RecordError(explain_unknown(name, self.names))
        return self._find(self._numbers[name])


def ask_curves(
    folder: Path,
    ask: Callable[[Curves], Answer],
    progress: Callable[[str], None] | None = None,
) -> Answer:
    """What ``ask`` finds out about the metrics of the run in ``folder``, as they are now.

    It may be called twice, and must not keep the curves: those on disk hold only meanwhile.
    ``progress`` hears how many points were looked at, while they are new.
    """
    with suppress(OSError, UncertainError):  # nobody may write there, or there are no points
        if (folder / "metrics.bin").stat().st_size > SMALL_BYTES:
            for is_new in (False, True):
                with suppress(DamagedError), _alone(folder / FOLDER):
                    return ask(_cached(folder, progress, is_new=is_new))
    points = load_points(folder)
    return ask(Curves(points.names, lambda numbers: _plain(points, numbers)))


def sort_points(folder: Path, progress: Callable[[str], None]) -> None:
    """Make ready what is asked of a long run; it takes seconds where it has millions of points."""
    with suppress(OSError):
        if (folder / "metrics.bin").stat().st_size > SMALL_BYTES:
            ask_curves(folder, lambda curves: None, progress)


def _plain(points: Points, numbers: list[int]) -> Plain:
    return Plain(*points.series_of(numbers))


@contextmanager
def _alone(cache: Path) -> Iterator[None]:
    """Hold back other processes of this machine and other threads, which would write here too."""
    if not cache.is_dir():
        with suppress(FileExistsError, durable.WriteError):
            durable.make_dir(cache)
    if sys.platform == "win32":
        raise UncertainError  # folders cannot be locked there
    descriptor = os.open(cache, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def _cached(folder: Path, progress: Callable[[str], None] | None, *, is_new: bool) -> Curves:
    """Curves on disk, with every point that there is now."""
    state = State(_find_limits(folder)) if is_new else _read_state(folder)
    _refresh(folder, state, progress or (lambda text: None))

    def find(numbers: list[int]) -> Curve:
        if len(numbers) > 1:  # a line of the names was damaged
            raise UncertainError
        return Pyramid(_stem(folder, numbers[0]), state.roots.get(numbers[0], Root()))

    return Curves(read_names(folder)[0], find)


def _find_limits(folder: Path) -> Limits:
    known = read_attempts(durable.find_object(folder / "run.json"))
    return find_limits({}, known) if known else {0: (MAX_COUNT, MAX_COUNT)}


def _stem(folder: Path, series: int) -> Path:
    return folder / FOLDER / str(series)


def _read_state(folder: Path) -> State:
    """What an earlier reader left; empty when it does not fit to the points any more."""
    limits = _find_limits(folder)
    try:
        found: Any = durable.decode_line((folder / FOLDER / STATE).read_bytes())
        roots = {int(number): Root(*root) for number, root in found["roots"].items()}
        listed = {int(number): tuple(limit) for number, limit in found["limits"].items()}
        state = State(limits, found["rows"], found["crc"], roots)
    except (OSError, KeyError, TypeError, ValueError, AttributeError):
        return State(limits)
    last = _read_rows(folder, max(0, state.rows - 1), state.rows)["crc"].tolist()
    is_same = not state.rows or last == [state.crc]
    fits = is_same and listed == limits and found.get("format") == _FORMAT
    return state if fits else State(limits)


def _read_rows(folder: Path, start: int, end: int) -> Rows:
    """Some rows of the file, as far as it has them."""
    path = folder / "metrics.bin"
    return np.fromfile(path, point_type(), max(0, end - start), offset=start * POINT_BYTES)


def _refresh(folder: Path, state: State, progress: Callable[[str], None]) -> None:
    """Add the points that are new."""
    end = find_good_bytes(folder / "metrics.bin") // POINT_BYTES
    if end == state.rows:
        return
    for start in range(state.rows, end, _CHUNK_ROWS):
        progress(f"{start:,} of {end:,} points sorted for charts")
        chunk = _read_rows(folder, start, min(end, start + _CHUNK_ROWS))
        whole = find_whole(chunk)
        numbers = set(np.unique(chunk["attempt"][whole]).tolist())
        if not numbers <= _listed(folder, state.limits):
            raise UncertainError
        current = whole & _is_current(chunk, start, state.limits)
        _add(folder, state, chunk if current.all() else chunk[current])
        state.rows, state.crc = start + len(chunk), int(chunk["crc"][-1])
    _write_state(folder, state)


def _listed(folder: Path, limits: Limits) -> set[int]:
    """The attempts of which it is known whether they count."""
    known = read_attempts(durable.find_object(folder / "run.json"))
    return {*limits, *(one.attempt for one in known)}


def _is_current(rows: Rows, start: int, limits: Limits) -> NDArray[np.bool_]:
    current = np.zeros(len(rows), bool)
    for number, (end, step) in limits.items():
        own = rows[: max(0, end - start)]
        current[: len(own)] |= (own["attempt"] == number) & (own["step"] <= step)
    return current


def _add(folder: Path, state: State, rows: Rows) -> None:
    """Add rows that count to the columns of their series."""
    if not len(rows):
        return
    series = np.ascontiguousarray(rows["series"])
    order = np.argsort(series, kind="stable")
    numbers, starts = np.unique(series[order], return_index=True)
    for number, own in zip(numbers.tolist(), np.split(order, starts[1:]), strict=True):
        steps = rows["step"][own].astype(np.int64)
        steps, values = keep_last(steps, rows["value"][own].astype(np.float64))
        root = state.roots.get(number, Root())
        state.roots[number] = extend_pyramid(_stem(folder, number), root, steps, values)


def _write_state(folder: Path, state: State) -> None:
    facts = {
        "format": _FORMAT,
        "rows": state.rows,
        "crc": state.crc,
        "limits": {str(number): limit for number, limit in state.limits.items()},
        "roots": {str(number): (root.count, root.crc) for number, root in state.roots.items()},
    }
    extend(folder / FOLDER / STATE, 0, durable.encode_line(facts))
