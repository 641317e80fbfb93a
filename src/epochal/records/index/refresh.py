"""Updates the tables of the index from the run folders, reading only what changed."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, final

from epochal.records.folder.reader import read_folder
from epochal.records.index.index_database import RUN_COLUMNS
from epochal.records.index.run_rows import (
    count_points,
    escape_surrogates,
    find_best,
    find_step,
    read_metrics,
    read_run_rows,
)
from epochal.records.layout.run_folders import (
    IndexedRun,
    scan_run_folders,
)

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Callable
    from pathlib import Path

    from epochal.records.index.run_rows import MetricRow, RunRows
    from epochal.records.layout.run_folders import ScannedRun

    ProgressCallback = Callable[[str], None]


def ignore_progress(_: str) -> None:
    """Discard a progress message."""


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
    """Read new and changed run folders below ``root``, or all of them, and remove deleted ones.

    With ``is_all`` the caches of runs do not count: everything is read from their records.
    """
    known = _load_known(connection)
    scanned = scan_run_folders(str(root.absolute()), known, progress)
    found = {escape_surrogates(one.path): one for one in scanned}
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
    """Commits often enough that readers do not wait, but not after each run."""

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
    rows = read_run_rows(folder, uses_cache=not is_all)
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
