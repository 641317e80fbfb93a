"""The index of all runs for a server: read by one thread, refreshed by another."""

from __future__ import annotations

import json
import threading
import time
from collections import deque
from concurrent.futures import ThreadPoolExecutor
from concurrent.futures import TimeoutError as FutureTimeoutError
from contextlib import suppress
from typing import TYPE_CHECKING, Any, TypeVar, final

from epochal.records.index import Index
from epochal.records.query.query_runs import is_root

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from concurrent.futures import Future
    from pathlib import Path

ReturnT = TypeVar("ReturnT")

MIN_SECONDS = 1.0
"""The shortest time between two refreshes."""

REST = 10
"""How many times as long as a refresh the pause after it lasts."""

PATIENCE_SECONDS = 0.05
FIRST_PATIENCE_SECONDS = 5.0
"""The same for the first refresh; then the runs that were read so far are shown."""


_MAX_CHANGES = 1000
_STATE = "SELECT run, path, status, step, points, stamp, tag, label, archived FROM runs"
_FIND = (
    "SELECT run, path FROM runs WHERE run IN (SELECT value FROM json_each(?)) "
    "AND (? = '' OR path = ? OR instr(path, ? || '/') = 1) ORDER BY started, id"
)


@final
class RunIndex:
    """Answers questions about all runs below a folder, and knows which runs changed.

    Args:
        root: The folder of all runs.
        below: Only runs below this folder, relative to the root.
        min_seconds: The shortest time between two refreshes.
        patience_seconds: How long a reader waits for a refresh, before it uses the last state.
    """

    def __init__(
        self,
        root: Path,
        below: str = "",
        *,
        min_seconds: float = MIN_SECONDS,
        patience_seconds: float | None = PATIENCE_SECONDS,
    ) -> None:
        self.root, self.below = root, below
        self._min_seconds, self._patience_seconds = min_seconds, patience_seconds
        self._is_on_disk = False
        self._reader = ThreadPoolExecutor(1, "epochal-read")
        self._refresher = ThreadPoolExecutor(1, "epochal-refresh")
        self._index: Index | None = None
        self._lock = threading.Lock()
        self._current: Future[None] | None = None
        self._due = 0.0
        self._known: dict[str, tuple[object, ...]] | None = None
        self._changes: deque[tuple[int, str]] = deque(maxlen=_MAX_CHANGES)
        self._answers: dict[str, tuple[int | None, Any]] = {}
        self.version = 0
        """Grows with every refresh that found a change."""

    @property
    def total(self) -> int:
        """The number of runs at the last refresh."""
        return len(self._known or ())

    def ask(self, work: Callable[[Index], ReturnT]) -> ReturnT:
        """What ``work`` gives for the index, which is read again first if that is overdue."""
        self._refresh_if_overdue()
        return self._reader.submit(self._work, work).result()

    def ask_once(self, name: str, work: Callable[[Index], ReturnT]) -> ReturnT:
        """The same for an answer with a name, which is kept until a run changes."""
        self._refresh_if_overdue()
        version = None if self._known is None else self.version
        kept = self._answers.get(name)
        if kept is None or version is None or kept[0] != version:
            kept = version, self._reader.submit(self._work, work).result()
            self._answers[name] = kept
        answer: ReturnT = kept[1]
        return answer

    def find(self, run_id: str) -> Path | None:
        """The folder of the newest run with this id."""
        return self.find_all([run_id]).get(run_id)

    def find_all(self, run_ids: Sequence[str]) -> dict[str, Path]:
        """The same for several ids; unknown ones are left out."""
        values = (json.dumps(run_ids), self.below, self.below, self.below)
        rows = self.ask(lambda index: index.fetch(_FIND, values))
        return {run: self.root / path for run, path in rows}

    def refresh(self) -> None:
        """Read what changed, and wait for it."""
        with self._lock:
            self._current = self._submit()
        self._current.result()

    def refresh_if_due(self) -> None:
        """Start a refresh if the last is old, and wait a moment for it; longer for the first."""
        with self._lock:
            is_free = self._current is None or self._current.done()
            if is_free and time.monotonic() >= self._due:
                self._current = self._submit()
            current = self._current
        if current is not None:
            is_first = self._known is None
            with suppress(FutureTimeoutError):
                current.result(FIRST_PATIENCE_SECONDS if is_first else self._patience_seconds)

    def _refresh_if_overdue(self) -> None:
        """Refresh, unless a stream of events has done so or will within a moment."""
        if self._known is None or time.monotonic() >= self._due + self._min_seconds:
            self.refresh_if_due()

    def changes_since(self, version: int) -> list[str] | None:
        """The ids of runs that changed; None if that is too long ago."""
        if version > self.version or (self._changes and version < self._changes[0][0] - 1):
            return None
        return list(dict.fromkeys(run for one, run in self._changes if one > version))

    def close(self) -> None:
        """End the threads."""
        self._refresher.shutdown()
        self._reader.submit(self._close).result()
        self._reader.shutdown()

    def _submit(self) -> Future[None]:
        return self._refresher.submit(self._refresh)

    def _work(self, work: Callable[[Index], ReturnT]) -> ReturnT:
        if self._is_on_disk and self._index is not None and self._index.path is None:
            self._close()  # the first run was made since it was opened
        if self._index is None:
            self._index = self._open()
        return work(self._index)

    def _open(self) -> Index:
        return Index.open(self.root, is_kept=is_root(self.root))

    def _close(self) -> None:
        if self._index is not None:
            self._index.close()
            self._index = None

    def _refresh(self) -> None:
        begin = time.monotonic()
        rows = self._refresh_file()
        self._is_on_disk = rows is not None
        if rows is None:
            rows = self._reader.submit(self._refresh_memory).result()
        self._note_changes({str(row[0]): row for row in rows})
        end = time.monotonic()
        self._due = end + max(self._min_seconds, REST * (end - begin)) * bool(self._min_seconds)

    def _refresh_file(self) -> list[tuple[object, ...]] | None:
        """The state of all runs; None if the index cannot be written to disk."""
        with self._open() as index:
            if index.path is None:
                return None
            index.refresh()
            return index.fetch(_STATE)

    def _refresh_memory(self) -> list[tuple[object, ...]]:
        """The same for an index that only its reader has."""
        if self._index is not None and self._index.path is not None:
            self._close()
        if self._index is None:
            self._index = self._open()
        self._index.refresh()
        return self._index.fetch(_STATE)

    def _note_changes(self, found: dict[str, tuple[object, ...]]) -> None:
        before, self._known = self._known, found
        if before is None:
            return
        changed = [run for run, row in found.items() if before.get(run) != row]
        changed += [run for run in before if run not in found]
        if changed:
            number = self.version + 1
            self._changes.extend((number, run) for run in changed)
            self.version = number
