"""The points of one metric on disk, and above them the extremes of ever larger blocks of points.

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

from epochal.durable.append import extend

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray

    Steps = NDArray[np.int64]
    Values = NDArray[np.float64]
    Blocks = NDArray[np.void]


BLOCK_SIZE = 128
CURVE_DTYPE = np.dtype([("step", "<i8"), ("value", "<f8")])


class CacheDamagedError(Exception):
    """What is on disk is not what was written there."""


@final
@dataclass(frozen=True, slots=True)
class PyramidRoot:
    """What must be known of a pyramid to believe it."""

    count: int = 0
    crc: int = 0

    @property
    def sizes(self) -> list[int]:
        """How many entries each level has; the highest one is a single block."""
        sizes = [self.count]
        while sizes[-1] > BLOCK_SIZE:
            sizes.append(-(-sizes[-1] // BLOCK_SIZE))
        return sizes


class Curve(Protocol):
    """The points of one metric, by step."""

    @property
    def count(self) -> int:
        """How many there are."""

    def count_before(self, steps: Steps) -> Steps:
        """How many points come before each step."""

    def read(self, start: int, end: int) -> tuple[Steps, Values]:
        """The points between two positions."""

    def steps_at(self, positions: Steps) -> Steps:
        """The steps of some points."""

    def reduce_ranges(self, starts: Steps, ends: Steps) -> Blocks:
        """The extremes of pieces between positions; pieces ascend and do not overlap."""


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
    """A curve on disk, of which every part is checked before it is believed.

    Args:
        stem: Its files begin with this.
        root: What is known of it.
    """

    def __init__(self, stem: Path, root: PyramidRoot) -> None:
        self._stem, self._root, self._sizes = stem, root, root.sizes
        self._rows = [np.empty(0, _level_dtype(level)) for level in range(len(self._sizes))]
        self._places = [np.full(-(-size // BLOCK_SIZE), -1) for size in self._sizes]

    @property
    @override
    def count(self) -> int:
        return self._root.count

    @property
    def highest(self) -> int:
        """The number of the highest level."""
        return len(self._sizes) - 1

    def rows(self, level: int, start: int, end: int) -> NDArray[np.void]:
        """Entries of a level between two positions; of level 0, points."""
        if start == end:
            return np.empty(0, _level_dtype(level))
        return self._pick(level, np.arange(start, end))

    @override
    def count_before(self, steps: Steps) -> Steps:
        found = np.zeros(len(steps), np.int64)
        for level in range(self.highest, -1, -1) if self.count else ():
            self._check(level, np.unique(found))
            firsts = self._rows[level]["step"].reshape(-1, BLOCK_SIZE)[self._places[level][found]]
            is_there = found[:, None] * BLOCK_SIZE + np.arange(BLOCK_SIZE) < self._sizes[level]
            found = found * BLOCK_SIZE + ((firsts < steps[:, None]) & is_there).sum(axis=1)
            if level:  # down into the block that the last of them begins
                found = np.maximum(found - 1, 0)
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
        return merge_blocks(heads, tails, scatter_blocks(inner, has_inner))

    def _gather(self, level: int, starts: Steps, ends: Steps) -> Blocks:
        return _reduce(level, self._pick(level, concatenate_ranges(starts, ends)), starts, ends)

    def _pick(self, level: int, positions: Steps) -> NDArray[np.void]:
        """Entries at ascending positions."""
        owners = positions // BLOCK_SIZE
        self._check(level, owners[np.diff(owners, prepend=-1) != 0])
        return self._rows[level][self._places[level][owners] * BLOCK_SIZE + positions % BLOCK_SIZE]

    def _check(self, level: int, blocks: Steps) -> None:
        """Have distinct blocks, in ascending order, in memory as they were written."""
        places = self._places[level]
        missing = blocks[places[blocks] < 0]
        if not len(missing):
            return
        expected = [self._root.crc]
        if level < self.highest:
            expected = self._pick(level + 1, missing)["crc"].tolist()
        rows = self._load(level, missing)
        data, size = rows.view(np.uint8).data, BLOCK_SIZE * rows.itemsize
        end = self._sizes[level] * rows.itemsize
        found = [
            zlib.crc32(data[i * size : i * size + min(size, end - block * size)])
            for i, block in enumerate(missing.tolist())
        ]
        if found != expected:
            raise CacheDamagedError
        places[missing] = np.arange(len(missing)) + len(self._rows[level]) // BLOCK_SIZE
        self._rows[level] = np.concatenate((self._rows[level], rows))

    def _load(self, level: int, blocks: Steps) -> NDArray[np.void]:
        """Read some blocks; those that lie side by side are read at once."""
        rows = np.zeros(len(blocks) * BLOCK_SIZE, _level_dtype(level))
        data, size = rows.view(np.uint8).data, BLOCK_SIZE * rows.itemsize
        bounds = [0, *(np.flatnonzero(np.diff(blocks) > 1) + 1).tolist(), len(blocks)]
        try:
            with self._stem.with_suffix(f".{level}").open("rb", buffering=0) as file:
                for start, end in pairwise(bounds):
                    part = data[start * size : end * size]
                    os.preadv(file.fileno(), [part], int(blocks[start]) * size)
        except FileNotFoundError as error:
            raise CacheDamagedError from error
        return rows


def extend_pyramid(stem: Path, root: PyramidRoot, steps: Steps, values: Values) -> PyramidRoot:
    """Add points whose steps ascend; a known step and all that follow it are merged.

    Raises:
        DamagedError: What they are to be added to cannot be believed.
    """
    old, kept = PyramidCurve(stem, root), root.count
    if kept and steps[0] <= old.steps_at(np.array([kept - 1]))[0]:
        kept = int(old.count_before(steps[:1])[0])
        later = old.read(kept, root.count)
        steps = np.concatenate((later[0], steps))
        steps, values = keep_last_per_step(steps, np.concatenate((later[1], values)))
    fresh = np.empty(len(steps), CURVE_DTYPE)
    fresh["step"], fresh["value"] = steps, values
    count, level = kept + len(steps), 0
    while True:
        # A level that was the highest has none above it that knows its blocks.
        block = kept // BLOCK_SIZE if level < old.highest else 0
        before = old.rows(level, block * BLOCK_SIZE, kept)
        whole = np.concatenate((before, fresh)) if len(before) else fresh
        extend(stem.with_suffix(f".{level}"), kept * fresh.itemsize, fresh.tobytes())
        above = _summarise_blocks(level, whole)
        if kept + len(fresh) <= BLOCK_SIZE:
            return PyramidRoot(count, int(above["crc"][0]))
        level, kept, fresh = level + 1, block, above


def _level_dtype(level: int) -> np.dtype[np.void]:
    return BLOCK_DTYPE if level else CURVE_DTYPE


def _reduce(level: int, rows: NDArray[np.void], starts: Steps, ends: Steps) -> Blocks:
    if level:
        return reduce_blocks(rows, starts, ends)
    return reduce_points_to_blocks(rows["step"], rows["value"], starts, ends)


def _summarise_blocks(level: int, rows: NDArray[np.void]) -> Blocks:
    """One entry for each block of a level."""
    starts = np.arange(0, len(rows), BLOCK_SIZE)
    above = _reduce(level, rows, starts, np.append(starts[1:], len(rows)))
    data, size = rows.view(np.uint8).data, BLOCK_SIZE * rows.itemsize
    above["crc"] = [zlib.crc32(data[i : i + size]) for i in range(0, len(data), size)]
    return above


BLOCK_DTYPE = np.dtype(
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

EMPTY_BLOCK = np.array((0, np.nan, np.nan, 0.0, 0, 0), BLOCK_DTYPE)


def reduce_blocks(entries: Blocks, starts: Steps, ends: Steps) -> Blocks:
    """One entry for each piece; the entries of the pieces lie one after the other.

    Args:
        entries: What the pieces are made of, and nothing else.
        starts: Where each piece begins, counted as the caller likes.
        ends: Where it ends.
    """
    return _reduce_columns({name: entries[name] for name in _COLUMNS}, starts, ends)


def reduce_points_to_blocks(steps: Steps, values: Values, starts: Steps, ends: Steps) -> Blocks:
    """The same of pieces that are made of points."""
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
    """The same entries at some places of a longer row, and empty ones at the others."""
    row = np.full(len(places), EMPTY_BLOCK)
    row[places] = found
    return row


def merge_blocks(*several: Blocks) -> Blocks:
    """Entry by entry the extremes of all; the step is that of the first."""
    return reduce(_merge_pair, several)


def _merge_pair(left: Blocks, right: Blocks) -> Blocks:
    found = left.copy()
    found["low"] = np.fmin(left["low"], right["low"])
    found["high"] = np.fmax(left["high"], right["high"])
    found["count"] += right["count"]
    with np.errstate(invalid="ignore", over="ignore"):
        found["total"] += right["total"]
    return found


def concatenate_ranges(starts: Steps, ends: Steps) -> Steps:
    """All positions of some pieces, one after the other."""
    lengths = ends - starts
    return np.repeat(starts - (np.cumsum(lengths) - lengths), lengths) + np.arange(lengths.sum())


def keep_last_per_step(steps: Steps, values: Values) -> tuple[Steps, Values]:
    """Points by step, of which the last word for each step counts."""
    if (steps[1:] > steps[:-1]).all():
        return steps, values
    steps, from_end = np.unique(steps[::-1], return_index=True)
    return steps, values[::-1][from_end]
