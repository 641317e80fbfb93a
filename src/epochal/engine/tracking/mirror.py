"""A mirror: copies points and media to somewhere else in a thread, so that nobody waits for it."""

from __future__ import annotations

import os
import threading
import time
from abc import ABC, abstractmethod
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from queue import SimpleQueue
from typing import TYPE_CHECKING, NamedTuple, final

from epochal.records.folder.media import Media, read_media
from epochal.records.metrics.points import is_step_mean, read_metric_points

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping
    from contextlib import AbstractContextManager
    from pathlib import Path

    from epochal.engine.interfaces.every import Every

MAX_QUEUED = 10_000
"""What may wait of points and media; further ones are left out."""

GATHER_SECONDS = 1.0
"""How long entries are gathered before they are written together."""

QUIET_SECONDS = 1.0
"""After how long whoever closes a mirror is told that it takes a while."""


class Entry(NamedTuple):
    """The points of one step."""

    step: int
    time: float
    """Seconds since 1970."""

    values: Mapping[str, float]


class Sink(ABC):
    """Where points and media go; only the thread of its mirror uses it."""

    @abstractmethod
    def write(self, entries: list[Entry]) -> None:
        """Take points, in the order in which they were recorded."""

    @abstractmethod
    def show(self, media: Media) -> None:
        """Take a file that the run showed, if it can be shown; between points, in their order."""

    @abstractmethod
    def read_known(self, names: Iterable[str]) -> dict[str, int]:
        """Up to which step it has points of some names already."""

    @abstractmethod
    def has(self, media: Media) -> bool:
        """Whether it has this file already; asked only of a run that goes on."""

    @abstractmethod
    def close(self, *, has_failed: bool) -> None:
        """The run is over, or its points are about to be written anew."""


@final
@dataclass(frozen=True)
class NewAttempt:
    """The run goes on from an earlier state, as another attempt."""

    attempt: int


@final
class Mirror:
    """Gives points to a sink, one batch after the other; what fails ends it and nothing else.

    A file that cannot be shown ends nothing: it is left out.

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

        self.unshown: tuple[Media, Exception] | None = None
        """The first file that could not be shown, and why."""

        self.lost = 0
        """How much was left out since it fell behind."""

        self._folder = folder
        self._open_sink = open_sink
        self._is_rewritten = is_rewritten
        self._every = every
        self._sink: Sink | None = None
        self._known: dict[str, int] = {}
        self._goes_on = False
        self._queue: SimpleQueue[Entry | Media | NewAttempt] = SimpleQueue()
        self._is_closing = threading.Event()
        self._has_failed = False
        self._thread: threading.Thread | None = None

    def put(self, points: Mapping[str, float], step: int) -> None:
        """Take points, to be written soon."""
        self._put_some(Entry(step, time.time(), points))

    def put_media(self, media: Media) -> None:
        """Take a file, to be read and shown soon."""
        self._put_some(media)

    def go_back(self, attempt: int) -> None:
        """Let what was put until now count only as far as the record says."""
        self._put(NewAttempt(attempt))

    def close(
        self,
        seconds: float,
        *,
        has_failed: bool = False,
        on_wait: Callable[[], object] = lambda: None,
    ) -> bool:
        """Write what waits and let go of the sink; whether that was done in time.

        Args:
            seconds: After how long it is left behind, with what it has not done.
            has_failed: Whether the run has.
            on_wait: Called when it takes longer than a moment.
        """
        self._has_failed = has_failed
        self._is_closing.set()
        if self._thread is None:
            return True
        quiet = min(seconds, QUIET_SECONDS)
        self._thread.join(quiet)
        if self._thread.is_alive():
            on_wait()
            self._thread.join(seconds - quiet)
        return not self._thread.is_alive()

    def _put_some(self, what: Entry | Media) -> None:
        if self._queue.qsize() >= MAX_QUEUED:
            self.lost += 1
        else:
            self._put(what)

    def _put(self, what: Entry | Media | NewAttempt) -> None:
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
        items: list[Entry | Media] = []
        while not self._queue.empty():  # nobody else takes from it
            one = self._queue.get()
            if isinstance(one, NewAttempt):
                self._write(items)
                items = self._begin_again(one.attempt)
            else:
                items.append(one)
        self._write(items)

    def _write(self, items: list[Entry | Media]) -> None:
        entries: list[Entry] = []
        for item in items:
            if isinstance(item, Media):
                self._write_entries(entries)
                self._show(item)
                entries = []
            else:
                entries.append(item)
        self._write_entries(entries)

    def _write_entries(self, entries: list[Entry]) -> None:
        fresh = [one for entry in entries if (one := self._leave_out_known(entry)).values]
        if fresh:
            self._get_sink().write(fresh)

    def _show(self, media: Media) -> None:
        sink = self._get_sink()
        if self._goes_on and sink.has(media):
            return
        try:
            sink.show(media)
        except Exception as error:  # of a file that may hold anything
            self.unshown = self.unshown or (media, error)

    def _get_sink(self) -> Sink:
        if self._sink is None:
            self._sink = self._open_sink()
        return self._sink

    def _leave_out_known(self, entry: Entry) -> Entry:
        if not self._known:
            return entry
        values = {
            name: value
            for name, value in entry.values.items()
            if entry.step > self._known.get(name, -1)
        }
        return entry._replace(values=values)

    def _begin_again(self, attempt: int) -> list[Entry | Media]:
        """Look what the sink has; gives what the record has of earlier attempts."""
        if self._sink is not None and self._is_rewritten:
            self._sink.close(has_failed=False)
            self._sink = None
        points = read_metric_points(self._folder)
        self._known = self._get_sink().read_known(points.names.values())
        self._goes_on = True
        rows = points.rows[(points.rows["attempt"] < attempt) & points.current]
        entries: dict[tuple[int, float], dict[str, float]] = {}
        for number, step, when, value in rows[["series", "step", "time", "value"]].tolist():
            if number in points.names:
                entries.setdefault((step, when), {})[points.names[number]] = value
        found = [Entry(step, when, values) for (step, when), values in entries.items()]
        media = read_media(self._folder, before=attempt)
        return sorted([*thin_entries(found, self._every), *media], key=lambda one: one.step)


def has_step_means(points: Mapping[str, float]) -> bool:
    """Whether these are points of training, recorded again and again between epochs."""
    return any(name == "lr" or name.startswith("lr/") or is_step_mean(name) for name in points)


def thin_entries(entries: list[Entry], every: Every) -> Iterator[Entry]:
    """What is taken of points of training, as far as steps alone can tell that."""
    last = 0
    for entry in entries:
        if has_step_means(entry.values):
            is_due = every.unit != "st" or entry.step // every.amount > last // every.amount
            last = max(last, entry.step)
            if every.is_never or not is_due:
                continue
        yield entry


@contextmanager
def fork_safe_import() -> Iterator[None]:
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
