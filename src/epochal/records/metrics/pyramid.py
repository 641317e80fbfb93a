"""The points of one metric on disk, with minimum, maximum and sum of blocks at several levels.

Level 0 is the points by step. Each entry of a level summarises ``BLOCK_SIZE`` entries of the level
below and holds the checksum of their bytes; the checksum of the highest level is stored elsewhere.
So every entry is verified before it is used, and a query over ten million points reads a few
thousand entries. Files are read, never memory-mapped: another process may truncate them.
"""

from __future__ import annotations

import os
import zlib
from dataclasses import dataclass
from functools import reduce
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Protocol, final

import numpy as np
from typing_extensions import override

from epochal import durable
from epochal.durable.append import extend

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from numpy.typing import NDArray

    Steps = NDArray[np.int64]
    Values = NDArray[np.float64]
    Blocks = NDArray[np.void]


BLOCK_SIZE = 16
CURVE_DTYPE = np.dtype([("step", "<i8"), ("value", "<f8")])


class CacheDamagedError(Exception):
    """A checksum of the cache is wrong, or a file is missing."""


@final
@dataclass(frozen=True, slots=True)
class PyramidRoot:
    """The size and the top checksum of a pyramid, from which all of it is verified."""

    count: int = 0
    crc: int = 0

    @property
    def sizes(self) -> list[int]:
        """The number of entries of each level; the highest level is one block."""
        sizes = [self.count]
        while sizes[-1] > BLOCK_SIZE:
            sizes.append(-(-sizes[-1] // BLOCK_SIZE))
        return sizes


class Curve(Protocol):
    """The points of one metric, by step."""

    @property
    def count(self) -> int:
        """The number of points."""

    def count_before(self, steps: Steps) -> Steps:
        """The number of points before each step."""

    def read(self, start: int, end: int) -> tuple[Steps, Values]:
        """Steps and values from position ``start`` to ``end``."""

    def steps_at(self, positions: Steps) -> Steps:
        """The steps at some positions."""

    def reduce_ranges(self, starts: Steps, ends: Steps) -> Blocks:
        """One block for each range of positions; ranges ascend and do not overlap."""


@final
class InMemoryCurve(Curve):
    """A curve in memory."""

    def __init__(self, steps: Steps, values: Values) -> None:
        self._steps, self._values = steps, values

    @property
    @override
    def count(self) -> int:
        return len(self._steps)

    @override
    def count_before(self, steps: Steps) -> Steps:
        return np.searchsorted(self._steps, steps).astype(np.int64)

    @override
    def read(self, start: int, end: int) -> tuple[Steps, Values]:
        return self._steps[start:end], self._values[start:end]

    @override
    def steps_at(self, positions: Steps) -> Steps:
        return self._steps[positions]

    @override
    def reduce_ranges(self, starts: Steps, ends: Steps) -> Blocks:
        flat = concatenate_ranges(starts, ends)
        return reduce_points_to_blocks(self._steps[flat], self._values[flat], starts, ends)


@final
class PyramidCurve(Curve):
    """A curve on disk, verified as it is read; ``stem`` is the path of its files without suffix."""

    def __init__(self, stem: Path, root: PyramidRoot) -> None:
        self._stem, self._root, self._sizes = stem, root, root.sizes
        self._rows = [np.empty(0, _level_dtype(level)) for level in range(len(self._sizes))]
        self._used = [0] * len(self._sizes)  # the rest of the rows is room for more
        self._places = [np.full(-(-size // BLOCK_SIZE), -1, np.int32) for size in self._sizes]

    @property
    @override
    def count(self) -> int:
        return self._root.count

    @property
    def highest(self) -> int:
        """The number of the highest level."""
        return len(self._sizes) - 1

    @property
    def num_bytes(self) -> int:
        """The memory of the parts that were read."""
        return sum(rows.nbytes for rows in (*self._rows, *self._places))

    def rows(self, level: int, start: int, end: int) -> NDArray[np.void]:
        """The entries of a level from ``start`` to ``end``; level 0 has points."""
        if start == end:
            return np.empty(0, _level_dtype(level))
        first, last = start // BLOCK_SIZE, (end - 1) // BLOCK_SIZE
        self._check(level, np.arange(first, last + 1))
        places = self._places[level][first : last + 1]
        if (places[1:] - places[:-1] == 1).all():  # they were read together: no copy
            begin = int(places[0]) * BLOCK_SIZE + start % BLOCK_SIZE
            return self._rows[level][begin : begin + end - start]
        return self._pick(level, np.arange(start, end))

    def narrow(self, first: int, last: int) -> Iterator[tuple[int, int, NDArray[np.void]]]:
        """The entries of each level above the points that have steps from ``first`` to ``last``.

        Gives the level, from the highest, the position of the first entry, and all of them.
        """
        start, end = 0, self._sizes[-1]
        for level in range(self.highest, 0, -1):
            rows = self.rows(level, start, end)
            low, high = np.searchsorted(rows["step"], (first, last), "right").tolist()
            low = max(0, low - 1)
            if low >= high:
                return
            yield level, start + low, rows[low:high]
            start, end = (start + low) * BLOCK_SIZE, (start + high) * BLOCK_SIZE
            end = min(end, self._sizes[level - 1])

    @override
    def count_before(self, steps: Steps) -> Steps:
        found = np.zeros(len(steps), np.int64)
        for level in range(self.highest if self.count else -1, -1, -1):
            found = np.maximum(found - 1, 0)  # the block of the last entry before the step
            self._check(level, np.unique(found))
            firsts = self._rows[level]["step"].reshape(-1, BLOCK_SIZE)[self._places[level][found]]
            is_there = found[:, None] * BLOCK_SIZE + np.arange(BLOCK_SIZE) < self._sizes[level]
            found = found * BLOCK_SIZE + ((firsts < steps[:, None]) & is_there).sum(axis=1)
        return found

    @override
    def read(self, start: int, end: int) -> tuple[Steps, Values]:
        rows = self.rows(0, start, end)
        return rows["step"].astype(np.int64), rows["value"].astype(np.float64)

    @override
    def steps_at(self, positions: Steps) -> Steps:
        return self._pick(0, positions)["step"].astype(np.int64)

    @override
    def reduce_ranges(self, starts: Steps, ends: Steps) -> Blocks:
        return self._reduce_ranges(0, starts, ends)

    def _reduce_ranges(self, level: int, starts: Steps, ends: Steps) -> Blocks:
        if level == self.highest or (ends - starts).sum() <= 2 * BLOCK_SIZE * len(starts):
            return self._gather(level, starts, ends)
        inner_starts, inner_ends = -(-starts // BLOCK_SIZE), ends // BLOCK_SIZE
        has_inner = inner_starts < inner_ends
        head_ends = np.where(has_inner, inner_starts * BLOCK_SIZE, ends)
        tail_starts = np.where(has_inner, inner_ends * BLOCK_SIZE, ends)
        heads = self._gather(level, starts, head_ends)
        tails = self._gather(level, tail_starts, ends)
        inner = self._reduce_ranges(level + 1, inner_starts[has_inner], inner_ends[has_inner])
        return reduce(merge_blocks, (heads, tails, scatter_blocks(inner, has_inner)))

    def _gather(self, level: int, starts: Steps, ends: Steps) -> Blocks:
        return _reduce(level, self._pick(level, concatenate_ranges(starts, ends)), starts, ends)

    def _pick(self, level: int, positions: Steps) -> NDArray[np.void]:
        """The entries at ascending positions."""
        owners = positions // BLOCK_SIZE
        self._check(level, owners[np.diff(owners, prepend=-1) != 0])
        places = self._places[level][owners] * BLOCK_SIZE + positions % BLOCK_SIZE
        return self._rows[level].take(places)  # an index copies field by field, 50 times slower

    def _check(self, level: int, blocks: Steps) -> None:
        """Load and verify distinct blocks, in ascending order."""
        places = self._places[level]
        missing = blocks[places[blocks] < 0]
        if not len(missing):
            return
        expected = [self._root.crc]
        if level < self.highest:
            expected = self._pick(level + 1, missing)["crc"].tolist()
        rows = self._load(level, missing)
        data, size = rows.view(np.uint8).data, BLOCK_SIZE * rows.itemsize
        found = [zlib.crc32(data[start : start + size]) for start in range(0, len(data), size)]
        if missing[-1] == len(places) - 1:  # the last block may have fewer entries
            length = self._sizes[level] * rows.itemsize - int(missing[-1]) * size
            found[-1] = zlib.crc32(data[len(data) - size :][:length])
        if found != expected:
            raise CacheDamagedError
        places[missing] = np.arange(len(missing)) + self._used[level] // BLOCK_SIZE
        self._keep(level, rows)

    def _keep(self, level: int, rows: NDArray[np.void]) -> None:
        start, end = self._used[level], self._used[level] + len(rows)
        if end > len(self._rows[level]):  # at least twice as much, so that little is copied
            larger = np.empty(max(end, 2 * start), rows.dtype)
            _copy_rows(larger[:start], self._rows[level][:start])
            self._rows[level] = larger
        _copy_rows(self._rows[level][start:end], rows)
        self._used[level] = end

    def _load(self, level: int, blocks: Steps) -> NDArray[np.void]:
        """Read blocks; adjacent ones with one call."""
        rows = np.zeros(len(blocks) * BLOCK_SIZE, _level_dtype(level))
        data, size = rows.view(np.uint8).data, BLOCK_SIZE * rows.itemsize
        bounds = [0, *(np.flatnonzero(np.diff(blocks) > 1) + 1).tolist(), len(blocks)]
        try:
            with durable.open_regular(self._stem.with_suffix(f".{level}")) as file:
                for start, end in pairwise(bounds):
                    part = data[start * size : end * size]
                    os.preadv(file.fileno(), [part], int(blocks[start]) * size)
        except FileNotFoundError as error:
            raise CacheDamagedError from error
        return rows


def _copy_rows(target: NDArray[np.void], rows: NDArray[np.void]) -> None:
    """Copy bytes; an assignment copies field by field, 40 times slower."""
    target.view(np.uint8)[:] = rows.view(np.uint8)


def count_points(level: int) -> int:
    """How many points an entry of a level stands for; the last one may stand for fewer."""
    return int(BLOCK_SIZE**level)


def extend_pyramid(stem: Path, root: PyramidRoot, steps: Steps, values: Values) -> PyramidRoot:
    """Add points whose steps ascend; later ones with known steps are merged.

    Raises CacheDamagedError if the pyramid on disk is damaged.
    """
    old, start = PyramidCurve(stem, root), root.count
    if start and steps[0] <= old.steps_at(np.array([start - 1]))[0]:
        start = int(old.count_before(steps[:1])[0])
        later = old.read(start, root.count)
        steps = np.concatenate((later[0], steps))
        steps, values = keep_last_per_step(steps, np.concatenate((later[1], values)))
    entries = np.empty(len(steps), CURVE_DTYPE)
    entries["step"], entries["value"] = steps, values
    count, level = start + len(steps), 0
    while True:
        # The highest level has no checksums above it, so all of it is summarised again.
        block = start // BLOCK_SIZE if level < old.highest else 0
        before = old.rows(level, block * BLOCK_SIZE, start)
        whole = np.concatenate((before, entries)) if len(before) else entries
        extend(stem.with_suffix(f".{level}"), start * entries.itemsize, entries.tobytes())
        above = _summarise_blocks(level, whole)
        if start + len(entries) <= BLOCK_SIZE:
            return PyramidRoot(count, int(above["crc"][0]))
        level, start, entries = level + 1, block, above


def _level_dtype(level: int) -> np.dtype[np.void]:
    return BLOCK_DTYPE if level else CURVE_DTYPE


def _reduce(level: int, rows: NDArray[np.void], starts: Steps, ends: Steps) -> Blocks:
    if level:
        return reduce_blocks(rows, starts, ends)
    return reduce_points_to_blocks(rows["step"], rows["value"], starts, ends)


def _summarise_blocks(level: int, rows: NDArray[np.void]) -> Blocks:
    """One entry of the next level for each block."""
    starts = np.arange(0, len(rows), BLOCK_SIZE)
    above = _reduce(level, rows, starts, np.append(starts[1:], len(rows)))
    data, size = rows.view(np.uint8).data, BLOCK_SIZE * rows.itemsize
    above["crc"] = [zlib.crc32(data[i : i + size]) for i in range(0, len(data), size)]
    return above


_NUMBERS = [(name, "<f8") for name in ("low", "high", "total")]
BLOCK_DTYPE = np.dtype([("step", "<i8"), *_NUMBERS, ("count", "<i8"), ("crc", "<u4")])
"""A summary of points: the first step; minimum, maximum, sum and number of values without NaN.

If all values are NaN, so are minimum and maximum. ``crc`` is used on disk only.
"""

_COLUMNS = ("step", "low", "high", "total", "count")

EMPTY_BLOCK = np.array((0, np.nan, np.nan, 0.0, 0, 0), BLOCK_DTYPE)


def reduce_blocks(entries: Blocks, starts: Steps, ends: Steps) -> Blocks:
    """One block for each range; ``entries`` has those of one range after the other."""
    return _reduce_columns({name: entries[name] for name in _COLUMNS}, starts, ends)


def reduce_points_to_blocks(steps: Steps, values: Values, starts: Steps, ends: Steps) -> Blocks:
    """The same for ranges of points."""
    is_number = ~np.isnan(values)
    known = values if is_number.all() else np.where(is_number, values, 0.0)
    columns = (steps, values, values, known, is_number.astype(np.int64))
    return _reduce_columns(dict(zip(_COLUMNS, columns, strict=True)), starts, ends)


def _reduce_columns(columns: dict[str, NDArray[Any]], starts: Steps, ends: Steps) -> Blocks:
    is_there = ends > starts
    lengths = (ends - starts)[is_there]
    offsets = np.cumsum(lengths) - lengths
    found = np.zeros(len(offsets), BLOCK_DTYPE)
    if len(offsets):
        found["step"] = columns["step"][offsets]
        found["low"] = np.fmin.reduceat(columns["low"], offsets)
        found["high"] = np.fmax.reduceat(columns["high"], offsets)
        found["count"] = np.add.reduceat(columns["count"], offsets)
        with np.errstate(invalid="ignore", over="ignore"):  # infinite values have no sum
            found["total"] = np.add.reduceat(columns["total"], offsets)
    return scatter_blocks(found, is_there)


def scatter_blocks(found: Blocks, places: NDArray[np.bool_]) -> Blocks:
    """The entries where ``places`` is true, and empty ones elsewhere."""
    if len(found) == len(places):
        return found
    row = np.full(len(places), EMPTY_BLOCK)
    row[places] = found
    return row


def merge_blocks(left: Blocks, right: Blocks) -> Blocks:
    """Merge blocks entry by entry; the step is that of the first."""
    found = left.copy()
    found["low"] = np.fmin(left["low"], right["low"])
    found["high"] = np.fmax(left["high"], right["high"])
    found["count"] += right["count"]
    with np.errstate(invalid="ignore", over="ignore"):
        found["total"] += right["total"]
    return found


def concatenate_ranges(starts: Steps, ends: Steps) -> Steps:
    """All positions of the ranges, one after the other."""
    lengths = ends - starts
    return np.repeat(starts - (np.cumsum(lengths) - lengths), lengths) + np.arange(lengths.sum())


def keep_last_per_step(steps: Steps, values: Values) -> tuple[Steps, Values]:
    """Points sorted by step, with the last value of each step."""
    if (steps[1:] > steps[:-1]).all():
        return steps, values
    steps, from_end = np.unique(steps[::-1], return_index=True)
    return steps, values[::-1][from_end]
