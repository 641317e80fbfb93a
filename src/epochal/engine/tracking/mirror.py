"""A mirror: copies points and media to another tool in a background thread."""

from __future__ import annotations

import os
import threading
import time
from abc import ABC, abstractmethod
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
"""Points and media that may wait in the queue; further ones are dropped."""

GATHER_SECONDS = 1.0
"""How long entries are collected before they are written together."""

QUIET_SECONDS = 1.0
"""After how long ``close`` reports that it waits."""


class Entry(NamedTuple):
    """The points of one step."""

    step: int
    time: float
    """Seconds since 1970."""

    values: Mapping[str, float]


class Sink(ABC):
    """The target of points and media; used only by the thread of its mirror."""

    @abstractmethod
    def write(self, entries: list[Entry]) -> None:
        """Write points, in the order in which they were recorded."""

    def show(self, media: Media) -> None:  # noqa: B027 - not every tool can
        """Show a file of the run, if the tool can; in order with the points."""

    def read_known(self, names: Iterable[str]) -> dict[str, int]:
        """The last step of the points that it already has, for each of these names."""
        return {}

    def has(self, media: Media) -> bool:
        """Whether it already has this file; called only for resumed runs."""
        return False

    @abstractmethod
    def close(self, *, has_failed: bool) -> None:
        """Close it, at the end of the run or before its points are written again."""


@final
@dataclass(frozen=True)
class NewAttempt:
    """Marks in the queue that the run continues from an earlier state as a new attempt."""

    attempt: int


@final
class Mirror:
    """Copies points and media to a sink; an error ends the mirror, but not the run.

    Files that cannot be shown are skipped. ``open_sink`` is called in the thread, when there is
    something to write. If ``is_rewritten``, a new sink is empty, so that all points are written
    again. Otherwise it keeps its points and gets no step twice; repeated steps have equal values.
    """

    def __init__(
        self, folder: Path, open_sink: Callable[[], Sink], *, is_rewritten: bool, every: Every
    ) -> None:
        self.failure: BaseException | None = None
        """The error that ended it."""

        self.unshown: tuple[Media, Exception] | None = None
        """The first file that could not be shown, with its error."""

        self.lost = 0
        """Points and files that were dropped because the queue was full."""

        self._folder = folder
        self._open_sink = open_sink
        self._is_rewritten = is_rewritten
        self._every = every
        self._sink: Sink | None = None
        self._known: dict[str, int] = {}
        self._is_resumed = False
        self._queue: SimpleQueue[Entry | Media | NewAttempt] = SimpleQueue()
        self._is_closing = threading.Event()
        self._has_failed = False
        self._thread: threading.Thread | None = None

    def put(self, points: Mapping[str, float], step: int) -> None:
        """Queue points."""
        self._put_some(Entry(step, time.time(), points))

    def put_media(self, media: Media) -> None:
        """Queue a file."""
        self._put_some(media)

    def start_attempt(self, attempt: int) -> None:
        """Start a new attempt: the sink gets what the record has of earlier attempts."""
        self._put(NewAttempt(attempt))

    def close(
        self,
        seconds: float,
        *,
        has_failed: bool = False,
        on_wait: Callable[[], object] = lambda: None,
    ) -> bool:
        """Write the queue and close the sink; returns whether that was done in time.

        ``on_wait`` is called if closing takes longer than ``QUIET_SECONDS``.
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
        except BaseException as error:  # some libraries raise SystemExit
            self.failure = error

    def _write_waiting(self) -> None:
        items: list[Entry | Media] = []
        while not self._queue.empty():  # only this thread reads it
            one = self._queue.get()
            if isinstance(one, NewAttempt):
                self._write(items)
                items = self._read_earlier_attempts(one.attempt)
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
        new = [one for entry in entries if (one := self._without_known(entry)).values]
        if new:
            self._get_sink().write(new)

    def _show(self, media: Media) -> None:
        sink = self._get_sink()
        if self._is_resumed and sink.has(media):
            return
        try:
            sink.show(media)
        except Exception as error:  # the file may have any content
            self.unshown = self.unshown or (media, error)

    def _get_sink(self) -> Sink:
        if self._sink is None:
            self._sink = self._open_sink()
        return self._sink

    def _without_known(self, entry: Entry) -> Entry:
        if not self._known:
            return entry
        values = {
            name: value
            for name, value in entry.values.items()
            if entry.step > self._known.get(name, -1)
        }
        return entry._replace(values=values)

    def _read_earlier_attempts(self, attempt: int) -> list[Entry | Media]:
        """The points and media that the record has of earlier attempts."""
        if self._sink is not None and self._is_rewritten:
            self._sink.close(has_failed=False)
            self._sink = None
        points = read_metric_points(self._folder)
        self._known = self._get_sink().read_known(points.names.values())
        self._is_resumed = True
        rows = points.rows[(points.rows["attempt"] < attempt) & points.current]
        entries: dict[tuple[int, float], dict[str, float]] = {}
        for number, step, when, value in rows[["series", "step", "time", "value"]].tolist():
            if number in points.names:
                entries.setdefault((step, when), {})[points.names[number]] = value
        found = [Entry(step, when, values) for (step, when), values in entries.items()]
        media = read_media(self._folder, before=attempt)
        return sorted([*thin_entries(found, self._every), *media], key=lambda one: one.step)


def has_step_means(points: Mapping[str, float]) -> bool:
    """Whether these are periodic training points: step means or learning rates."""
    return any(name == "lr" or name.startswith("lr/") or is_step_mean(name) for name in points)


def thin_entries(entries: list[Entry], every: Every) -> Iterator[Entry]:
    """The entries without the training points that are not due; periods in time keep all."""
    last = 0
    for entry in entries:
        if has_step_means(entry.values):
            is_due = every.unit != "st" or entry.step // every.amount > last // every.amount
            last = max(last, entry.step)
            if every.is_never or not is_due:
                continue
        yield entry


@cache
def fork_safe_import() -> AbstractContextManager[object]:
    """Block forks while a thread imports a package: a child would inherit a held import lock."""
    lock = threading.RLock()
    if hasattr(os, "register_at_fork"):  # absent where fork is
        os.register_at_fork(
            before=lock.acquire, after_in_parent=lock.release, after_in_child=lock.release
        )
    return lock
