"""Opens, refreshes, queries and verifies the index of all runs."""

from __future__ import annotations

import sqlite3
import time
from contextlib import closing, suppress
from typing import TYPE_CHECKING, Any, Self, final

from epochal.records.folder.machine import find_file_system, is_network_file_system
from epochal.records.index import index_database
from epochal.records.index.index_database import INTERNAL_COLUMNS, RUN_COLUMNS, create_tables
from epochal.records.index.refresh import RefreshResult, ignore_progress, refresh_tables
from epochal.records.index.run_rows import to_fts_query
from epochal.records.layout.run_folders import (
    EPOCHAL_DIR,
    INDEX_FILE,
    is_run_folder,
    make_epochal_dir,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from epochal.records.index.refresh import ProgressCallback

_MAX_WAIT_SECONDS = 1.0
"""How long to wait for another process that refreshes; then the last state is used."""

_POLL_SECONDS = 0.02
_SEARCH_WEIGHTS = "10.0, 5.0, 1.0"
"""Weights of matches in texts of users, in values that were set, and in defaults."""


def _file_identity(path: Path) -> object:
    """Distinguishes a file from one that replaced it; None without a file."""
    try:
        place = path.stat()
    except OSError:
        return None
    return place.st_dev, place.st_ino


@final
class Index:
    """A cache of the facts about all runs below a folder; create it with ``open``.

    It is in ``.epochal/index.db`` below the root, or in memory if that cannot be written.
    """

    def __init__(self, root: Path) -> None:
        self.root = root
        self.path: Path | None = None
        """The file; None for an index in memory."""

        self.notes: list[str] = []
        """Messages for the user: why it was rebuilt, or is not on disk."""

        self.is_shared = False
        """Whether machines share the file, so that it has no write-ahead log."""

        self._connection: sqlite3.Connection | None = None
        self._identity: object = None

    @classmethod
    def open(cls, root: Path, *, is_kept: bool = True) -> Self:
        """The index of the runs below ``root`` in its last state; ``refresh`` reads the folders.

        Only if ``is_kept`` may it be written to disk. ``root`` need not exist.
        """
        index = cls(root)
        if not is_kept or not root.is_dir() or is_run_folder(root):  # never write there
            index._connection = index_database.open_in_memory(root / EPOCHAL_DIR / INDEX_FILE)
            return index
        try:
            index._open_file(make_epochal_dir(root) / INDEX_FILE)
        except (OSError, sqlite3.OperationalError) as error:
            index._use_memory(error)
        return index

    @property
    def connection(self) -> sqlite3.Connection:
        """A read-only connection."""
        assert self._connection is not None, "the index is closed"
        return self._connection

    @property
    def is_built(self) -> bool:
        """Whether all runs were read once, so that a refresh reads only changes."""
        return bool(self.fetch("SELECT is_built FROM state")[0][0])

    def fetch(self, question: str, values: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        """All rows of a query; a damaged index is rebuilt."""
        try:
            return self.connection.execute(question, values).fetchall()
        except index_database.ReadErrors as error:
            if not index_database.is_damage(error, is_query=True):
                raise
        self._replace(is_damaged=True)
        self.refresh()
        return self.connection.execute(question, values).fetchall()

    def search(self, words: str) -> list[int]:
        """The ids of runs that have words with all these prefixes, best match first."""
        match = to_fts_query(words.split())
        if not match:
            return []
        order = f"bm25(search, {_SEARCH_WEIGHTS}), rowid DESC"
        rows = self.fetch(
            f"SELECT rowid FROM search WHERE search MATCH ? ORDER BY {order}", [match]
        )
        return [row[0] for row in rows]

    def refresh(
        self, progress: ProgressCallback = ignore_progress, *, is_all: bool = False
    ) -> RefreshResult:
        """Read new and changed run folders, or all of them, and remove deleted ones."""
        if self.path is None:
            return _refresh_memory(self.connection, self.root, progress, is_all=is_all)
        try:
            return self._refresh_file(self.path, progress, is_all=is_all)
        except (OSError, *index_database.ReadErrors) as error:
            if not isinstance(error, OSError) and index_database.is_damage(error):
                self._replace(is_damaged=True)
                return self._refresh_file(self.path, progress, is_all=is_all)
            self._use_memory(error)  # not writable, or a full disk
            return _refresh_memory(self.connection, self.root, progress, is_all=is_all)

    def close(self) -> None:
        """Close the file; a second call does nothing."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _open_file(self, path: Path) -> None:
        self.path = path
        self.is_shared = is_network_file_system(find_file_system(path.parent)[0])
        is_trusted = index_database.is_trusted(path)
        is_there = is_trusted or (path.exists() and index_database.is_being_written(path))
        if not (is_there and self._try_open(path)):
            self._replace(is_damaged=is_trusted)

    def _try_open(self, path: Path) -> bool:
        """Open a file if its tables are there."""
        try:
            self._open_reader(path)
            return index_database.has_own_tables(self.connection)
        except index_database.ReadErrors as error:
            if not index_database.is_damage(error):
                raise
            return False

    def _replace(self, *, is_damaged: bool = False) -> None:
        """Replace an unusable file by an empty index, unless another process just did."""
        assert self.path is not None
        self.close()
        with index_database.holding_writer_lock(self.path, waits=True):
            is_same = _file_identity(self.path) == self._identity
            if (is_damaged and is_same) or not index_database.is_trusted(self.path):
                aside = index_database.put_aside(self.path)
                with index_database.writing(self.path, is_shared=self.is_shared) as writer:
                    writer.execute("BEGIN IMMEDIATE")
                    create_tables(writer)
                    writer.execute("COMMIT")
                if aside is not None:
                    why = "changed since its last refresh, or from another version"
                    why = "damaged" if is_damaged else why
                    self.notes.append(f"{self.path}: {why}; rebuilt, the old one is {aside.name}")
        self._open_reader(self.path)

    def _open_reader(self, path: Path) -> None:
        self._identity = _file_identity(path)
        self._connection = index_database.open_reader(path)

    def _refresh_file(
        self, path: Path, progress: ProgressCallback, *, is_all: bool
    ) -> RefreshResult:
        deadline = time.monotonic() + _MAX_WAIT_SECONDS
        while True:
            with index_database.holding_writer_lock(path) as is_mine:
                if is_mine:
                    with index_database.writing(path, is_shared=self.is_shared) as writer:
                        return refresh_tables(writer, self.root, progress=progress, is_all=is_all)
            (total,) = self.fetch("SELECT count(*) FROM runs")[0]
            if self.is_built and time.monotonic() > deadline:
                return RefreshResult(total, is_current=False)
            progress(f"another process reads the runs: {total} so far")
            time.sleep(_POLL_SECONDS)

    def _use_memory(self, error: Exception) -> None:
        """Continue in memory if the file cannot be used."""
        with suppress(sqlite3.Error):
            self.close()
        path = self.root / EPOCHAL_DIR / INDEX_FILE
        reason = getattr(error, "strerror", None) or str(error)
        self.notes.append(
            f"{path} cannot be written ({reason.lower()}); what changed is read each time"
        )
        self.path = None
        self._connection = index_database.open_in_memory(path)


def _refresh_memory(
    connection: sqlite3.Connection, root: Path, progress: ProgressCallback, *, is_all: bool
) -> RefreshResult:
    connection.execute("PRAGMA query_only = OFF")
    try:
        return refresh_tables(connection, root, progress=progress, is_all=is_all)
    finally:
        connection.execute("PRAGMA query_only = ON")


_COLUMNS = [name for name in RUN_COLUMNS if name not in (*INTERNAL_COLUMNS, "path")]
_RUNS = f"SELECT path, id, {', '.join(_COLUMNS)} FROM runs"
_PARTS = {
    "config": "SELECT key, text, number, is_default FROM params WHERE run_id = ? ORDER BY key",
    "metrics": "SELECT name, last, low, high, last_step, count FROM metrics WHERE run_id = ? "
    "ORDER BY name",
    "words": "SELECT about, given, defaults FROM search WHERE rowid = ?",
}


def find_index_errors(index: Index, progress: ProgressCallback) -> Iterator[str]:
    """One line for each difference between the index and the folders.

    Active runs may change during the comparison and then differ.
    """
    try:
        checks = [text for (text,) in index.connection.execute("PRAGMA integrity_check(5)")]
    except sqlite3.DatabaseError as error:
        checks = [str(error)]
    if checks != ["ok"]:
        yield from (f"the file is damaged: {text}" for text in checks)
        return
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as fresh:
        create_tables(fresh)
        refresh_tables(fresh, index.root, progress=progress, is_all=True)
        yield from _compare(index.connection, fresh)


def _compare(known: sqlite3.Connection, fresh: sqlite3.Connection) -> Iterator[str]:
    found = {path: (run_id, values) for path, run_id, *values in fresh.execute(_RUNS)}
    indexed = {path: (run_id, values) for path, run_id, *values in known.execute(_RUNS)}
    yield from (f"{path}: not in the index" for path in found.keys() - indexed.keys())
    yield from (f"{path}: not on disk" for path in indexed.keys() - found.keys())
    for path in sorted(found.keys() & indexed.keys()):
        (old_id, old), (new_id, new) = indexed[path], found[path]
        changed = [(name, b) for name, a, b in zip(_COLUMNS, old, new, strict=True) if a != b]
        wrong = [_describe(name, value) for name, value in changed]
        wrong += [
            part
            for part, question in _PARTS.items()
            if known.execute(question, (old_id,)).fetchall()
            != fresh.execute(question, (new_id,)).fetchall()
        ]
        if wrong:
            yield f"{path}: differs in {', '.join(wrong)}"


def _describe(column: str, value: str) -> str:
    lines = value.splitlines() if column == "damage" else []
    return f"damage ({'; '.join(lines)})" if lines else column
