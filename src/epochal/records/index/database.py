"""The SQLite file of the index: its tables, and how it is inspected, opened, locked and removed."""

from __future__ import annotations

import os
import sqlite3
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Literal
from urllib.parse import quote

from epochal import durable
from epochal.durable.reading import NO_FOLLOW
from epochal.errors import RecordError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

APPLICATION_ID = 0x45504F43
"""Distinguishes an index from other SQLite files."""

SCHEMA_VERSION = 7
"""Version of the tables; an index of another version is rebuilt."""

RUN_COLUMNS = {
    "path": "TEXT NOT NULL UNIQUE",  # relative to the folder of all runs, with slashes
    "run": "TEXT NOT NULL",  # the id
    "project": "TEXT NOT NULL",
    "tag": "TEXT NOT NULL",  # the title of README.md
    "desc": "TEXT NOT NULL",  # the text of README.md
    "variant": "TEXT NOT NULL",
    "fast": "INTEGER NOT NULL",  # 1 if it used only a few batches, by --fast
    "status": "TEXT NOT NULL",  # also `lost` and `damaged`
    "reason": "TEXT NOT NULL",
    "runner": "TEXT NOT NULL",
    "started": "TEXT NOT NULL",  # ISO-8601 in UTC; empty when unknown
    "ended": "TEXT NOT NULL",
    "seconds": "REAL",  # of work, without the time between attempts
    "step": "INTEGER NOT NULL",
    "epoch": "INTEGER NOT NULL",
    "attempt": "INTEGER NOT NULL",
    "rollbacks": "INTEGER NOT NULL",
    "seed": "",  # an integer; a text if it needs more than 64 bits
    "host": "TEXT NOT NULL",
    "parent": "TEXT NOT NULL",  # the id of the parent run
    "parent_kind": "TEXT NOT NULL",  # trial, fold, weights, test, ...
    "sweep": "TEXT NOT NULL",  # the id of the sweep of which it is a trial
    "trial": "INTEGER",  # the number of the trial
    "monitor": "TEXT NOT NULL",
    "best": "REAL",
    "code": "TEXT NOT NULL",  # digest of the snapshot
    "replicate": "TEXT NOT NULL",  # the same for runs that differ only by seed
    "error": "TEXT NOT NULL",  # the error of a failed run, in one line
    "result": "TEXT NOT NULL",  # JSON: the metrics of the result
    "points": "INTEGER NOT NULL",  # in metrics.bin, replaced ones included
    "damage": "TEXT NOT NULL",  # one line for each missing or unreadable file
    "stamp": "TEXT NOT NULL",  # of the folder; it is read again when it differs
}
"""The columns of ``runs`` besides ``id``. An unknown text is empty, an unknown number NULL."""

MIN_INTEGER, MAX_INTEGER = -(2**63), 2**63 - 1
"""Range of exact integers; a config may have larger ones, up to 2**64."""

INTERNAL_COLUMNS = ("stamp",)
"""Columns that queries cannot name."""

_TABLES = (
    f"CREATE TABLE runs (id INTEGER PRIMARY KEY, "
    f"{', '.join(f'{name} {kind}' for name, kind in RUN_COLUMNS.items())})",
    "CREATE INDEX runs_by_name ON runs (run)",
    # One row per leaf of the expanded config, and one per list, as JSON text. Booleans have the
    # text true or false and the number 1 or 0. `number` has no type: REAL would round integers.
    "CREATE TABLE params (run_id INTEGER NOT NULL, key TEXT NOT NULL, text TEXT, number, "
    "is_default INTEGER NOT NULL, PRIMARY KEY (run_id, key)) WITHOUT ROWID",
    # A covering index, so that one key of all runs is read at once.
    "CREATE INDEX params_by_key ON params (key, text, number, is_default)",
    # One row per series; `low` and `high` without NaN.
    "CREATE TABLE metrics (run_id INTEGER NOT NULL, name TEXT NOT NULL, last REAL, low REAL, "
    "high REAL, last_step INTEGER, count INTEGER, PRIMARY KEY (run_id, name)) WITHOUT ROWID",
    "CREATE INDEX metrics_by_name ON metrics (name, last)",
    "CREATE TABLE state (is_built INTEGER NOT NULL)",  # whether all runs were read once
    "INSERT INTO state VALUES (0)",
    # Texts of users, values that were set, and defaults; rowid is the id of the run.
    "CREATE VIRTUAL TABLE search USING fts5 (about, given, defaults, "
    "tokenize = 'unicode61 remove_diacritics 2')",
)


def create_tables(connection: sqlite3.Connection) -> None:
    """Create the tables in an empty database; RecordError if SQLite has no full-text search."""
    for statement in _TABLES:
        try:
            connection.execute(statement)
        except sqlite3.OperationalError as error:
            if "fts5" not in str(error):
                raise
            raise RecordError(
                "the SQLite of this Python cannot search texts: it was built without FTS5\n"
                "  use a Python from your distribution, conda or python.org"
            ) from error
    connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
    connection.execute(f"PRAGMA user_version = {SCHEMA_VERSION}")


_BUSY_MILLISECONDS = 30_000
_CACHE_KIB = 65_536
_SIDE_FILES = ("-wal", "-shm", "-journal")

IndexFileState = Literal["usable", "missing", "damaged", "foreign", "newer", "older"]


def inspect_index_file(path: Path) -> IndexFileState:
    """The state of the file at ``path``; OperationalError if it is locked for long."""
    if path.is_symlink() or (path.exists() and not path.is_file()):
        return "damaged"  # nothing is written through a link
    if not path.exists():
        return "missing"
    try:
        connection = open_reader(path)
        try:
            application, version = _read_marks(connection)
            (tables,) = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
        finally:
            connection.close()
    except sqlite3.DatabaseError as error:
        if is_corruption_error(error):
            return "damaged"
        raise
    if application == 0 and not tables:
        return "missing"  # its creator was killed before the first table
    if application != APPLICATION_ID:
        return "foreign"
    return (
        "usable" if version == SCHEMA_VERSION else "newer" if version > SCHEMA_VERSION else "older"
    )


def is_corruption_error(error: sqlite3.Error) -> bool:
    """Whether an error means that the file is damaged or no database."""
    code = getattr(error, "sqlite_errorcode", 0) & 0xFF
    return code in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)


def open_reader(path: Path) -> sqlite3.Connection:
    """A read-only connection."""
    connection = _connect(f"file:{quote(str(path.absolute()))}?mode=ro")
    connection.execute("PRAGMA query_only = ON")
    return connection


def open_writer(path: Path, *, is_shared: bool) -> sqlite3.Connection:
    """A connection for the one process that holds the lock; the file is created if missing.

    A file that machines share has no write-ahead log, which needs shared memory.
    """
    connection = _connect(f"file:{quote(str(path.absolute()))}?mode=rwc")
    connection.execute(f"PRAGMA journal_mode = {'DELETE' if is_shared else 'WAL'}").fetchone()
    connection.execute("PRAGMA synchronous = NORMAL")
    return connection


def truncate_wal(connection: sqlite3.Connection) -> None:
    """Move the write-ahead log into the file, unless a process is reading from it."""
    connection.execute("PRAGMA busy_timeout = 0")
    connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()


def open_in_memory(source: Path) -> sqlite3.Connection:
    """An index in memory, copied from ``source`` if that is usable."""
    for options in ("mode=ro", "mode=ro&immutable=1"):  # a write-ahead log needs a writable folder
        memory = _connect("file::memory:")
        if not source.is_file() or (options != "mode=ro" and _has_log(source)):
            break
        try:
            file = _connect(f"file:{quote(str(source.absolute()))}?{options}")
            try:
                file.backup(memory)
            finally:
                file.close()
            if _read_marks(memory) == (APPLICATION_ID, SCHEMA_VERSION):
                return memory
        except sqlite3.DatabaseError:
            pass
        memory.close()
    memory = _connect("file::memory:")
    create_tables(memory)
    return memory


def _has_log(path: Path) -> bool:
    log = path.with_name(f"{path.name}-wal")
    return log.exists() and log.stat().st_size > 0


def _read_marks(connection: sqlite3.Connection) -> tuple[int, int]:
    (application,) = connection.execute("PRAGMA application_id").fetchone()
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    return application, version


def _connect(uri: str) -> sqlite3.Connection:
    connection = sqlite3.connect(uri, uri=True, isolation_level=None)
    connection.execute(f"PRAGMA busy_timeout = {_BUSY_MILLISECONDS}")
    connection.execute(f"PRAGMA cache_size = -{_CACHE_KIB}")
    connection.execute("PRAGMA temp_store = MEMORY")
    return connection


def remove_index_file(path: Path) -> None:
    """Delete the file and its side files; the caller must hold the lock."""
    for name in (path.name, *(f"{path.name}{suffix}" for suffix in _SIDE_FILES)):
        with suppress(FileNotFoundError):
            path.with_name(name).unlink()


@contextmanager
def holding_writer_lock(path: Path, *, waits: bool = False) -> Iterator[bool]:
    """Hold the writer lock in a block; gives False if another process has it, unless ``waits``."""
    lock = path.with_name(f"{path.name}.lock")
    with durable.locked(lock, os.O_RDWR | os.O_CREAT | NO_FOLLOW, waits=waits) as is_mine:
        yield is_mine is not False  # without locks, rely on those of SQLite
