"""Keeps verified parts of long curves in memory, for a server that shows them repeatedly."""

from __future__ import annotations

import os
import threading
from collections import OrderedDict
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeVar, final

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from epochal.records.metrics.curve_cache import RunCurves

ReturnT = TypeVar("ReturnT")

MAX_BYTES = 64 << 20
_FILES = ("metrics.bin", "run.json", "series.jsonl")
"""The files on which the curves of a run depend; each change of one changes its stamp."""

Stamp = tuple[tuple[int, int, int] | None, ...]


@final
@dataclass(slots=True)
class _KeptCurves:
    stamp: Stamp
    curves: RunCurves
    num_bytes: int = 0
    lock: threading.Lock = field(default_factory=threading.Lock)


@final
class CurveMemory:
    """Curves of long runs, as long as their files do not change.

    Every part was verified when it was read, so nothing is read or checked twice.

    Args:
        max_bytes: How much memory they may use; the least recently used ones are dropped first.
    """

    def __init__(self, max_bytes: int = MAX_BYTES) -> None:
        self._max_bytes = max_bytes
        self._kept: OrderedDict[Path, _KeptCurves] = OrderedDict()
        self._num_bytes = 0
        self._lock = threading.Lock()

    def query(self, folder: Path, ask: Callable[[RunCurves], ReturnT]) -> ReturnT:
        """What ``ask`` returns for the current metrics of a run, as ``query_curves``."""
        from epochal.records.metrics.curve_cache import query_curves  # needs numpy
        from epochal.records.metrics.pyramid import CacheDamagedError

        stamp = _take_stamp(folder)
        with self._lock:
            kept = self._kept.get(folder)
        if kept is not None and kept.stamp == stamp:
            with kept.lock, suppress(CacheDamagedError, OSError):
                answer = ask(kept.curves)
                self._keep(folder, kept)
                return answer
        found: list[RunCurves] = []

        def ask_and_keep(curves: RunCurves) -> ReturnT:
            found[:] = [curves] * curves.is_stored
            return ask(curves)

        answer = query_curves(folder, ask_and_keep)
        for curves in found:
            self._keep(folder, _KeptCurves(stamp, curves))
        return answer

    def _keep(self, folder: Path, kept: _KeptCurves) -> None:
        with self._lock:
            if (before := self._kept.pop(folder, None)) is not None:
                self._num_bytes -= before.num_bytes
            kept.num_bytes = kept.curves.num_bytes
            self._kept[folder] = kept  # as the most recently used
            self._num_bytes += kept.num_bytes
            while self._num_bytes > self._max_bytes:
                self._num_bytes -= self._kept.popitem(last=False)[1].num_bytes


def _take_stamp(folder: Path) -> Stamp:
    found: list[tuple[int, int, int] | None] = []
    for name in _FILES:
        try:
            place = os.stat(f"{folder}/{name}")  # noqa: PTH116 - Path is slow
        except OSError:
            found.append(None)
        else:
            found.append((place.st_ino, place.st_size, place.st_mtime_ns))
    return tuple(found)
