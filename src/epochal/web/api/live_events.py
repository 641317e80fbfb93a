"""Server-sent events: which runs changed, new points, growing logs, unread mail.

The id of an event says how far each file was read. A browser that reconnects sends it back, and
gets exactly what it missed.
"""

from __future__ import annotations

import asyncio
import json
import os
import secrets
from typing import TYPE_CHECKING, Any, final

from epochal import durable
from epochal.durable.beneath import open_beneath
from epochal.records.folder.reader import find_logs, read_folder
from epochal.records.layout.attempts import read_attempts
from epochal.records.mail.mailbox import INBOX, Mailbox
from epochal.records.metrics.points import (
    POINT_BYTES,
    get_point_dtype,
    mask_valid_rows,
    read_series_names,
)
from epochal.records.project.project_database import get_database_path
from epochal.web.site.numbers import to_json_numbers
from epochal.web.site.route import EventStream

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator
    from pathlib import Path

    from epochal.web.site.route import ApiCall
    from epochal.web.site.site import Site

    Event = tuple[str, dict[str, Any]]

MAX_WATCHED = 100
TICK_SECONDS = 0.5
QUIET_TICKS = 30
"""After so many ticks without an event, a comment keeps the connection open."""

_MAX_ROWS = 30_000
"""The most points of one run in one tick; the next tick sends the rest."""

_BOOT = secrets.token_hex(4)
"""Distinguishes the event ids of this server from those of an earlier one."""


def open_events(site: Site, call: ApiCall) -> EventStream:
    """The stream of events about all runs, and about the points of some."""
    assert call.session is not None
    runs, session = list(dict.fromkeys(call.query["run"])), call.session
    watch = LiveWatch(site, runs, call.last_event_id)
    return EventStream(_stream(watch, lambda: site.sessions.has(session)))


async def _stream(watch: LiveWatch, is_open: Callable[[], bool]) -> AsyncIterator[str]:
    events = await asyncio.to_thread(watch.start)
    yield f"retry: 2000\n{_format(events, watch.position)}"
    quiet = 0
    while is_open():  # until the browser signs out
        await asyncio.sleep(TICK_SECONDS)
        events = await asyncio.to_thread(watch.poll)
        quiet = 0 if events else quiet + 1
        if events:
            yield _format(events, watch.position)
        elif quiet % QUIET_TICKS == 0:
            yield ": still here\n\n"


def _format(events: list[Event], position: str) -> str:
    """Events as text; the position belongs to the last one, since all are sent together."""
    parts = []
    for i, (name, value) in enumerate(events):
        data = json.dumps(value, ensure_ascii=True, separators=(",", ":"))
        mark = f"id: {position}\n" if i == len(events) - 1 else ""
        parts.append(f"event: {name}\n{mark}data: {data}\n\n")
    return "".join(parts)


@final
class LiveWatch:
    """What one browser has seen, and what is new.

    Args:
        site: The server.
        runs: The ids of the runs whose points it wants; of a single one it also gets the log.
        last_id: The id of the last event that it got, if it reconnects.
    """

    def __init__(self, site: Site, runs: list[str], last_id: str = "") -> None:
        self._site, self._runs, self._last_id = site, runs, last_id
        self._files: dict[str, RunTail] = {}
        self._version = 0
        self._mail_stamp: object = None
        self._unread = -1
        self._queue_stamp = self._read_queue_stamp()

    @property
    def position(self) -> str:
        """The id of an event now."""
        rows = (str(self._files[run].rows if run in self._files else 0) for run in self._runs)
        return ".".join((_BOOT, str(self._version), *rows))

    def start(self) -> list[Event]:
        """The first events: what was missed, or the state now."""
        index = self._site.index
        index.refresh_if_due()
        boot, *numbers = self._last_id.split(".")
        is_resumed = len(numbers) == 1 + len(self._runs) and all(map(str.isdecimal, numbers))
        version, *rows = map(int, numbers) if is_resumed else [0] * (1 + len(self._runs))
        folders = index.find_all(self._runs) if self._runs else {}
        for run, row in zip(self._runs, rows, strict=True):
            if run in folders:
                known, has_log = row if is_resumed else None, len(self._runs) == 1
                self._files[run] = RunTail(run, folders[run], known, has_log=has_log)
        self._version = index.version
        is_known = is_resumed and boot == _BOOT
        changed = index.changes_since(version) if is_known else None if is_resumed else []
        events: list[Event] = [("runs", {"changed": changed, "total": index.total})]
        return events + [event for event in self.poll() if event[0] != "runs"]

    def poll(self) -> list[Event]:
        """What is new since the last call."""
        index = self._site.index
        index.refresh_if_due()
        events: list[Event] = []
        for tail in self._files.values():
            events += tail.poll()
        if index.version != self._version:
            before, self._version = self._version, index.version
            changed = index.changes_since(before)
            events.append(("runs", {"changed": changed, "total": index.total}))
        events += self._poll_mail()
        stamp = self._read_queue_stamp()
        if stamp != self._queue_stamp:
            self._queue_stamp = stamp
            events.append(("queue", {}))
        return events

    def _read_queue_stamp(self) -> tuple[int, ...]:
        """Changes whenever the queue does."""
        path = get_database_path(self._site.index.root)
        files = (path, path.with_name(f"{path.name}-wal"))
        return tuple(one.stat().st_mtime_ns if one.exists() else 0 for one in files)

    def _poll_mail(self) -> list[Event]:
        box = Mailbox(self._site.index.root)
        try:
            stamp: object = (box.folder / INBOX).stat().st_mtime_ns
        except OSError:
            stamp = None
        if stamp == self._mail_stamp and self._unread >= 0:
            return []
        self._mail_stamp = stamp
        before, self._unread = self._unread, box.count_unread()
        return [("mail", {"unread": self._unread})] if before != self._unread else []


@final
class RunTail:
    """Reads what a run appends to its metrics and its log.

    Args:
        run: The id of the run.
        folder: Its folder.
        rows: How many points are known; by default all that there are.
        has_log: Whether it reads the log, whose name is in the config of the run.
    """

    def __init__(self, run: str, folder: Path, rows: int | None, *, has_log: bool) -> None:
        self._run, self._folder, self._has_log = run, folder, has_log
        self._names: dict[int, str] = {}
        logs = find_logs(read_folder(folder)) if has_log else {}
        self._logs = {
            rank: os.path.relpath(path, folder).replace(os.sep, "/") for rank, path in logs.items()
        }
        self._log_size = -1
        self.rows = self._count() if rows is None else min(rows, self._count())

    def poll(self) -> list[Event]:
        """Events for new points and a longer log."""
        return [*self._new_points(), *(self._new_log() if self._has_log else ())]

    def _count(self) -> int:
        try:
            return (self._folder / "metrics.bin").lstat().st_size // POINT_BYTES
        except OSError:
            return 0

    def _new_points(self) -> Iterator[Event]:
        end = self._count()
        if end < self.rows:  # an incomplete last row was removed
            self.rows = end
        if end == self.rows:
            return
        import numpy as np

        try:
            with open_beneath(self._folder, "metrics.bin") as file:
                file.seek(self.rows * POINT_BYTES)
                data = file.read(min(end - self.rows, _MAX_ROWS) * POINT_BYTES)
        except OSError:
            return
        rows = np.frombuffer(data[: len(data) // POINT_BYTES * POINT_BYTES], get_point_dtype())
        self.rows += len(rows)
        rows = rows[mask_valid_rows(rows)]
        attempts = read_attempts(durable.find_object(self._folder / "run.json"))
        newest = max((one.attempt for one in attempts), default=0)
        rows = rows[rows["attempt"] >= newest]  # older ones may have been replaced
        numbers = np.unique(rows["series"]).tolist()
        if not {*numbers} <= self._names.keys():
            self._names = read_series_names(self._folder)[0]
        for number in numbers:
            own = rows[rows["series"] == number]
            if number in self._names:
                yield (
                    "points",
                    {
                        "run": self._run,
                        "name": self._names[number],
                        "attempt": newest,
                        "x": own["step"].tolist(),
                        "time": np.round(own["time"], 3).tolist(),
                        "y": to_json_numbers(own["value"]),
                    },
                )

    def _new_log(self) -> Iterator[Event]:
        name = self._logs.get(0)
        if name is None:
            self._logs = dict.fromkeys([0], "logs/run.log")
            return
        try:
            size = (self._folder / name).lstat().st_size
        except OSError:
            return
        if size != self._log_size:
            is_first, self._log_size = self._log_size < 0, size
            if not is_first:
                yield "log", {"run": self._run, "size": size}
