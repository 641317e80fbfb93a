"""Updates the tables of the index from the run folders, reading only what changed."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple, final

from epochal.records.folder.record import read_folder
from epochal.records.index.database import RUN_COLUMNS
from epochal.records.index.run_rows import (
    count_points,
    escape_surrogates,
    find_best,
    find_step,
    read_metrics,
    read_run_rows,
)
from epochal.records.layout.process import host_name
from epochal.records.layout.run_folders import MAX_DEPTH, looks_like_run_folder

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from epochal.records.index.run_rows import MetricRow, RunRows

    ProgressCallback = Callable[[str], None]

_COMMIT_SECONDS = 0.5
"""How long a transaction may last before readers see it."""

_COLUMNS = tuple(RUN_COLUMNS)
_INSERT_RUN = f"INSERT INTO runs ({', '.join(_COLUMNS)}) VALUES ({', '.join('?' * len(_COLUMNS))})"
_UPDATE_RUN = f"UPDATE runs SET {', '.join(f'{name} = ?' for name in _COLUMNS)} WHERE id = ?"
_PARTS = ("params", "metrics")


@final
@dataclass(frozen=True, slots=True)
class RefreshResult:
    """The result of a refresh."""

    total: int
    """The number of runs."""

    read: int = 0
    """How many were new or changed."""

    removed: int = 0
    is_current: bool = True
    """False if another process was still refreshing the index."""


def refresh_tables(
    connection: sqlite3.Connection, root: Path, *, progress: ProgressCallback, is_all: bool = False
) -> RefreshResult:
    """Read new and changed run folders below ``root``, and remove deleted ones.

    Args:
        connection: The connection of the writer.
        root: Folder of all runs.
        progress: Receives messages.
        is_all: Whether to read unchanged folders, too.
    """
    known = _load_known(connection)
    progress("looking for runs")
    found = {
        escape_surrogates(one.path): one for one in scan_run_folders(str(root.absolute()), known)
    }
    deleted = [one.id for path, one in known.items() if path not in found]
    to_read = [
        (path, one)
        for path, one in found.items()
        if is_all or one.is_changed or not known[path].is_inactive
    ]
    batch = _Batch(connection)
    for i, (path, one) in enumerate(to_read):
        progress(f"reading runs: {i} of {len(to_read)}")
        _read_one(connection, root, one, known.get(path), is_all=is_all)
        batch.commit_if_due()
    for run_id in deleted:
        _delete_parts(connection, run_id)
        connection.execute("DELETE FROM runs WHERE id = ?", (run_id,))
        batch.commit_if_due()
    connection.execute("UPDATE state SET is_built = 1 WHERE is_built = 0")
    batch.commit()
    read = sum(is_all or one.is_changed for _, one in to_read)
    return RefreshResult(len(found), read, len(deleted))


@final
class _Batch:
    """Transactions that are long enough to be fast, and short enough for readers."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        self._begin()

    def commit_if_due(self) -> None:
        if time.monotonic() - self._since > _COMMIT_SECONDS:
            self.commit()
            self._begin()

    def commit(self) -> None:
        self._connection.execute("COMMIT")

    def _begin(self) -> None:
        self._connection.execute("BEGIN IMMEDIATE")
        self._since = time.monotonic()


def _load_known(connection: sqlite3.Connection) -> dict[str, IndexedRun]:
    rows = connection.execute("SELECT path, id, stamp, status, host, points FROM runs")
    return {path: IndexedRun(*values) for path, *values in rows}


def _read_one(
    connection: sqlite3.Connection,
    root: Path,
    one: ScannedRun,
    known: IndexedRun | None,
    *,
    is_all: bool,
) -> None:
    folder = root / one.path
    if known is not None and not one.is_changed and not is_all:
        _update_active_run(connection, folder, known)
        return
    rows = read_run_rows(folder)
    if not folder.is_dir():  # moved or deleted meanwhile; the next refresh finds it
        return
    given = {**rows.values, "path": escape_surrogates(one.path), "stamp": one.stamp}
    values = [given[name] for name in _COLUMNS]
    if known is None:
        run_id = connection.execute(_INSERT_RUN, values).lastrowid or 0
    else:
        run_id = known.id
        connection.execute(_UPDATE_RUN, (*values, run_id))
        _delete_parts(connection, run_id)
    _write_parts(connection, run_id, rows)


def _update_active_run(connection: sqlite3.Connection, folder: Path, known: IndexedRun) -> None:
    """Update an active run whose folder is unchanged: it may have logged points, or died."""
    record = read_folder(folder)
    status, points = record.summary.status, count_points(folder)
    if points != known.points:
        metrics = read_metrics(record)
        connection.execute("DELETE FROM metrics WHERE run_id = ?", (known.id,))
        _write_metrics(connection, known.id, metrics)
        values = find_best(record, metrics), find_step(record, metrics)
        connection.execute("UPDATE runs SET best = ?, step = ? WHERE id = ?", (*values, known.id))
    if (points, status) != (known.points, known.status):
        connection.execute(
            "UPDATE runs SET status = ?, points = ? WHERE id = ?", (status, points, known.id)
        )


def _delete_parts(connection: sqlite3.Connection, run_id: int) -> None:
    for table in _PARTS:
        connection.execute(f"DELETE FROM {table} WHERE run_id = ?", (run_id,))
    connection.execute("DELETE FROM search WHERE rowid = ?", (run_id,))


def _write_parts(connection: sqlite3.Connection, run_id: int, rows: RunRows) -> None:
    # Two keys of a damaged config may be equal after escaping.
    connection.executemany(
        "INSERT OR REPLACE INTO params (run_id, key, text, number, is_default) "
        "VALUES (?, ?, ?, ?, ?)",
        [(run_id, *one) for one in rows.params],
    )
    _write_metrics(connection, run_id, rows.metrics)
    connection.execute(
        "INSERT INTO search (rowid, about, given, defaults) VALUES (?, ?, ?, ?)",
        (run_id, *rows.words),
    )


def _write_metrics(connection: sqlite3.Connection, run_id: int, metrics: list[MetricRow]) -> None:
    connection.executemany(
        "INSERT OR REPLACE INTO metrics (run_id, name, last, low, high, last_step, count) "
        "VALUES (?, ?, ?, ?, ?, ?, ?)",
        [(run_id, *one) for one in metrics],
    )


_ACTIVE = ("starting", "running")
_EDITED_FILES = ("README.md", "status.json")
"""Files that users edit in place, which does not change the time of the folder."""

_RECENT_SECONDS = 2.0
"""Age below which a folder may change again within the resolution of its time."""

RECENT_STAMP = "young"
"""The stamp of a folder that was just changed; it is read again."""


class IndexedRun(NamedTuple):
    """One run in the index."""

    id: int
    stamp: str
    status: str
    host: str
    points: int

    @property
    def is_inactive(self) -> bool:
        """Whether its facts can change only with its folder."""
        # A lost process of this machine stays lost; the heartbeat of another one may return.
        is_remote = self.status == "lost" and self.host != host_name()
        return self.status not in _ACTIVE and not is_remote


class ScannedRun(NamedTuple):
    """One run folder on disk."""

    path: str
    """Relative to the folder of all runs, with slashes; ``.`` if that is a run itself."""

    stamp: str
    is_changed: bool
    """Whether the index has no entry with this stamp."""


def scan_run_folders(root: str, known: Mapping[str, IndexedRun]) -> list[ScannedRun]:
    """Every run folder below ``root``; known and unchanged ones are not listed.

    The time of a folder changes when a file in it is replaced, as Epochal does. Files that users
    edit in place are checked, too.
    """
    scanner = _RunScanner(known)
    scanner.visit(root, ".", MAX_DEPTH)
    return scanner.found


@final
class _RunScanner:
    """Scans folders with as few system calls as possible."""

    def __init__(self, known: Mapping[str, IndexedRun]) -> None:
        self.found: list[ScannedRun] = []
        self._known = known
        self._seen: set[tuple[int, int]] = set()
        self._recent_ns = time.time_ns() - int(_RECENT_SECONDS * 1e9)

    def visit(self, folder: str, path: str, depth: int) -> None:
        """Check a folder and, if it is no run, its subfolders."""
        try:
            place = os.stat(folder)  # noqa: PTH116 - Path is slow
        except OSError:  # deleted meanwhile, or not readable
            return
        spot = (place.st_dev, place.st_ino)
        if spot in self._seen:  # a link to a folder that was visited
            return
        self._seen.add(spot)
        one = self._known.get(path)
        if one is not None and one.stamp == (stamp := self._stamp(folder, place)) != RECENT_STAMP:
            self.found.append(ScannedRun(path, stamp, is_changed=False))
            return
        try:
            with os.scandir(folder) as entries:
                inner = {entry.name: entry for entry in entries}
        except OSError:
            return
        if looks_like_run_folder(os.path.basename(folder), inner.keys()):  # noqa: PTH119
            stamp = self._stamp(folder, place)
            self.found.append(ScannedRun(path, stamp, is_changed=True))
        elif depth:
            for name in sorted(inner):
                if not name.startswith(".") and _is_folder(inner[name]):
                    below = name if path == "." else f"{path}/{name}"
                    self.visit(f"{folder}/{name}", below, depth - 1)

    def _stamp(self, folder: str, place: os.stat_result) -> str:
        newest, written = place.st_ctime_ns, ""
        for name in _EDITED_FILES:
            try:
                file = os.stat(f"{folder}/{name}")  # noqa: PTH116
            except OSError:
                written += ":-"
            else:
                newest = max(newest, file.st_ctime_ns)
                written += f":{file.st_mtime_ns}:{file.st_size}"
        if newest > self._recent_ns:
            return RECENT_STAMP
        return f"{place.st_ino}:{place.st_mtime_ns}:{place.st_ctime_ns}{written}"


def _is_folder(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_dir()
    except OSError:  # a circular link
        return False
