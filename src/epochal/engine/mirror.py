"""A mirror: copies points to somewhere else in a thread of its own, so that nobody waits for it."""

from __future__ import annotations

import os
import threading
import time
from abc import ABC, abstractmethod
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, NamedTuple, final

from epochal.records.metrics import is_epoch_mean, load_points

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping
    from contextlib import AbstractContextManager
    from pathlib import Path

    from epochal.engine.every import Every

MOST_WAITING = 10_000
"""Entries that may wait; further ones are left out."""

GATHER_SECONDS = 1.0
"""How long entries are gathered before they are written together."""


class Entry(NamedTuple):
    """The points of one step."""

    step: int
    time: float
    """Seconds since 1970."""

    values: Mapping[str, float]


class Sink(ABC):
    """Where points go; only the thread of its mirror uses it."""

    @abstractmethod
    def write(self, entries: list[Entry]) -> None:
        """Take points, in the order in which they were recorded."""

    @abstractmethod
    def read_known(self, names: Iterable[str]) -> dict[str, int]:
        """Up to which step it has points of some names already."""

    @abstractmethod
    def close(self, *, has_failed: bool) -> None:
        """The run is over, or its points are about to be written anew."""


@final
@dataclass(frozen=True)
class GoBack:
    """The run goes on from an earlier state, as another attempt."""

    attempt: int


@final
class Mirror:
    """Gives points to a sink, one batch after the other; what fails ends it and nothing else.

    Args:
        folder: That of the run.
        open_sink: Called in the thread, when there is something to write.
        is_rewritten: Whether a new sink holds nothing, so that nothing is left in it of steps
            that are done again. Otherwise it keeps what it has, and gets no step twice: steps
            that are done again come to the same values.
        every: How often it takes points of training.
    """

    def __init__(
        self, folder: Path, open_sink: Callable[[], Sink], *, is_rewritten: bool, every: Every
    ) -> None:
        self.failure: BaseException | None = None
        """What ended it."""

        self.lost = 0
        """How many entries were left out since it fell behind."""

        self._folder = folder
        self._open_sink = open_sink
        self._is_rewritten = is_rewritten
        self._every = every
        self._sink: Sink | None = None
        self._known: dict[str, int] = {}
        self._queue: SimpleQueue[Entry | GoBack] = SimpleQueue()
        self._is_closing = threading.Event()
        self._has_failed = False
        self._thread: threading.Thread | None = None

    def put(self, points: Mapping[str, float], step: int) -> None:
        """Take points, to be written soon."""
        if self._queue.qsize() >= MOST_WAITING:
            self.lost += 1
            return
        self._put(Entry(step, time.time(), points))

    def go_back(self, attempt: int) -> None:
        """Let what was put until now count only as far as the record says."""
        self._put(GoBack(attempt))

    def close(self, seconds: float, *, has_failed: bool = False) -> bool:
        """Write what waits and let go of the sink; whether that was done in time."""
        self._has_failed = has_failed
        self._is_closing.set()
        if self._thread is None:
            return True
        self._thread.join(seconds)
        return not self._thread.is_alive()

    def _put(self, what: Entry | GoBack) -> None:
        self._queue.put(what)
        if self._thread is None:
            self._thread = threading.Thread(target=self._work, name="mirror", daemon=True)
            self._thread.start()

    def _work(self) -> None:
        try:
            while not self._is_closing.wait(GATHER_SECONDS):
                self._write_waiting()
            self._write_waiting()
            if self._sink is not None:
                self._sink.close(has_failed=self._has_failed)
        except BaseException as error:  # libraries may even exit
            self.failure = error

    def _write_waiting(self) -> None:
        entries: list[Entry] = []
        while (one := self._next()) is not None:
            if isinstance(one, GoBack):
                self._write(entries)
                entries = self._begin_again(one.attempt)
            else:
                entries.append(one)
        self._write(entries)

    def _next(self) -> Entry | GoBack | None:
        try:
            return self._queue.get_nowait()
        except Empty:
            return None

    def _write(self, entries: list[Entry]) -> None:
        fresh = [one for entry in entries if (one := self._leave_out_known(entry)).values]
        if fresh:
            if self._sink is None:
                self._sink = self._open_sink()
            self._sink.write(fresh)

    def _leave_out_known(self, entry: Entry) -> Entry:
        if not self._known:
            return entry
        values = {
            name: value
            for name, value in entry.values.items()
            if entry.step > self._known.get(name, -1)
        }
        return entry._replace(values=values)

    def _begin_again(self, attempt: int) -> list[Entry]:
        """Look what the sink has; gives what the record has of earlier attempts."""
        if self._sink is not None and self._is_rewritten:
            self._sink.close(has_failed=False)
            self._sink = None
        if self._sink is None:
            self._sink = self._open_sink()
        points = load_points(self._folder)
        self._known = self._sink.read_known(points.names.values())
        rows = points.rows[(points.rows["attempt"] < attempt) & points.current]
        entries: dict[tuple[int, float], dict[str, float]] = {}
        for number, step, when, value in rows[["series", "step", "time", "value"]].tolist():
            if number in points.names:
                entries.setdefault((step, when), {})[points.names[number]] = value
        found = [Entry(step, when, values) for (step, when), values in entries.items()]
        return list(thin(found, self._every))


def is_of_steps(points: Mapping[str, float]) -> bool:
    """Whether these are points of training, recorded again and again between epochs."""
    return any(
        name == "lr" or (name.startswith(("lr/", "train/")) and not is_epoch_mean(name))
        for name in points
    )


def thin(entries: list[Entry], every: Every) -> Iterator[Entry]:
    """What is taken of points of training, as far as steps alone can tell that."""
    last = 0
    for entry in entries:
        if is_of_steps(entry.values):
            is_due = every.unit != "st" or entry.step // every.amount > last // every.amount
            last = max(last, entry.step)
            if every.is_never or not is_due:
                continue
        yield entry


@contextmanager
def importing() -> Iterator[None]:
    """Import a package in a thread; no process is forked meanwhile, in which it never ended."""
    with _fork_lock():
        yield


@cache
def _fork_lock() -> AbstractContextManager[object]:
    lock = threading.RLock()
    if hasattr(os, "register_at_fork"):  # else nobody forks
        os.register_at_fork(
            before=lock.acquire, after_in_parent=lock.release, after_in_child=lock.release
        )
    return lock
