"""The SQLite file of the index: its tables, and how it is verified, opened, locked and renamed."""

from __future__ import annotations

import itertools
import os
import sqlite3
import stat
from contextlib import closing, contextmanager, suppress
from typing import TYPE_CHECKING
from urllib.parse import quote

from epochal import durable
from epochal.durable.reading import NO_FOLLOW
from epochal.errors import RecordError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

SCHEMA_VERSION = 8
"""Version of the tables; an index of another version is rebuilt."""

RUN_COLUMNS = {
    "path": "TEXT NOT NULL UNIQUE",  # relative to the folder of all runs, with slashes
    "run": "TEXT NOT NULL",  # the id
    "project": "TEXT NOT NULL",
    "tag": "TEXT NOT NULL",  # the title of README.md
    "desc": "TEXT NOT NULL",  # the text of README.md
    "label": "TEXT NOT NULL",  # all labels, with ", " between them
    "archived": "INTEGER NOT NULL",  # 1 if lists leave it out
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


_BUSY_MILLISECONDS = 3_000
_CACHE_KIB = 65_536
_SIDE_FILES = ("-wal", "-shm", "-journal")

_STAMP_SUFFIX = ".stamp"
_ASIDE_SUFFIX = ".aside"


def is_trusted(path: Path) -> bool:
    """Whether nothing but this version of Epochal has written the file since its last refresh.

    SQLite has no checksums: a changed byte may hide a run, change a value, or add a trigger. So
    each writer leaves the size and times of the file in a stamp beside it, and a file without its
    stamp is not even opened. That includes copies, whose runs would be read again anyway.
    """
    try:
        return durable.read_text(path.with_name(path.name + _STAMP_SUFFIX)) == _take_stamp(path)
    except (OSError, ValueError):
        return False


def _take_stamp(path: Path) -> str:
    """What changes with the file or its write-ahead log; ValueError for irregular files."""
    words = [f"epochal index {SCHEMA_VERSION}"]
    for suffix in ("", *_SIDE_FILES):
        try:
            place = path.with_name(path.name + suffix).lstat()
        except FileNotFoundError:
            if not suffix:
                raise
            continue
        if not stat.S_ISREG(place.st_mode):
            raise ValueError(path)
        if not suffix or (suffix != "-shm" and place.st_size):
            # As superuser, SQLite changes the owner, so the ctime, of each log that it opens.
            times = f"{place.st_mtime_ns}" if suffix else f"{place.st_mtime_ns} {place.st_ctime_ns}"
            words.append(f"{suffix or 'file'} {place.st_ino} {place.st_size} {times}")
    return "\n".join(words) + "\n"


def _write_stamp(path: Path) -> None:
    if not is_trusted(path):
        durable.write_text(path.with_name(path.name + _STAMP_SUFFIX), _take_stamp(path))


def is_being_written(path: Path) -> bool:
    """Whether another process may be writing the file now; true if that is unknown."""
    with durable.locked(_lock_of(path), os.O_RDWR | os.O_CREAT | NO_FOLLOW, waits=False) as is_mine:
        return is_mine is not True


def has_own_tables(connection: sqlite3.Connection) -> bool:
    """Whether the tables are exactly those of an index, without triggers and views."""
    question = "SELECT type, name, tbl_name, sql FROM sqlite_master ORDER BY type, name"
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as fresh:
        create_tables(fresh)
        return connection.execute(question).fetchall() == fresh.execute(question).fetchall()


_ENVIRONMENT = {
    0,  # not from SQLite itself
    sqlite3.SQLITE_PERM,
    sqlite3.SQLITE_BUSY,
    sqlite3.SQLITE_LOCKED,
    sqlite3.SQLITE_NOMEM,
    sqlite3.SQLITE_READONLY,
    sqlite3.SQLITE_INTERRUPT,
    sqlite3.SQLITE_IOERR,
    sqlite3.SQLITE_FULL,
    sqlite3.SQLITE_CANTOPEN,
    sqlite3.SQLITE_PROTOCOL,
}


ReadErrors = (sqlite3.DatabaseError, UnicodeDecodeError)
"""What reading a file may raise; Python fails to decode damaged text."""


def is_damage(error: Exception, *, is_query: bool = False) -> bool:
    """Whether the file causes an error, not its surroundings or a user's query."""
    if isinstance(error, UnicodeDecodeError) or "decode to UTF-8" in str(error):
        return True
    code = getattr(error, "sqlite_errorcode", 0) & 0xFF
    return code not in _ENVIRONMENT and not (is_query and code == sqlite3.SQLITE_ERROR)


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


@contextmanager
def writing(path: Path, *, is_shared: bool) -> Iterator[sqlite3.Connection]:
    """A writer in a block, for the process that holds the lock; the result is trusted later."""
    writer, is_sound = open_writer(path, is_shared=is_shared), True
    try:
        yield writer
        # Move the write-ahead log into the file, unless a process is reading from it.
        writer.execute("PRAGMA busy_timeout = 0")
        writer.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
    except sqlite3.Error:
        is_sound = False
        raise
    finally:
        writer.close()
        if is_sound:
            _write_stamp(path)


def open_in_memory(source: Path) -> sqlite3.Connection:
    """An index in memory, copied from ``source`` if that is trusted."""
    is_trustworthy = is_trusted(source)
    for options in ("mode=ro", "mode=ro&immutable=1"):  # a write-ahead log needs a writable folder
        if not is_trustworthy or (options != "mode=ro" and _has_log(source)):
            break
        memory = _connect("file::memory:")
        try:
            file = _connect(f"file:{quote(str(source.absolute()))}?{options}")
            try:
                file.execute("BEGIN")  # a copy of a locked file would wait forever
                file.execute("SELECT is_built FROM state").fetchone()
                file.backup(memory)
            finally:
                file.close()
            return memory
        except sqlite3.DatabaseError:
            memory.close()
    memory = _connect("file::memory:")
    create_tables(memory)
    return memory


def _has_log(path: Path) -> bool:
    log = path.with_name(f"{path.name}-wal")
    return log.exists() and log.stat().st_size > 0


def _connect(uri: str) -> sqlite3.Connection:
    connection = sqlite3.connect(uri, uri=True, isolation_level=None)
    connection.execute(f"PRAGMA busy_timeout = {_BUSY_MILLISECONDS}")
    connection.execute(f"PRAGMA cache_size = -{_CACHE_KIB}")
    connection.execute("PRAGMA temp_store = MEMORY")
    return connection


def put_aside(path: Path) -> Path | None:
    """Rename the file, also if it is a folder, and remove its side files; None if it is missing.

    The caller must hold the lock.
    """
    for suffix in (*_SIDE_FILES, _STAMP_SUFFIX):
        side = path.with_name(path.name + suffix)
        if side.is_dir() and not side.is_symlink():
            side.rename(_find_free(side))
        else:
            side.unlink(missing_ok=True)
    aside = path.with_name(path.name + _ASIDE_SUFFIX)
    if path.is_dir() or aside.is_dir():  # do not overwrite a file that may be the user's
        aside = _find_free(path)
    with suppress(FileNotFoundError):
        path.replace(aside)
        return aside
    return None


def _find_free(path: Path) -> Path:
    names = (path.with_name(f"{path.name}{_ASIDE_SUFFIX}-{i}") for i in itertools.count(1))
    return next(one for one in names if not os.path.lexists(one))


def _lock_of(path: Path) -> Path:
    return path.with_name(f"{path.name}.lock")


@contextmanager
def holding_writer_lock(path: Path, *, waits: bool = False) -> Iterator[bool]:
    """Hold the writer lock in a block; False if another process has it, unless ``waits``."""
    with durable.locked(_lock_of(path), os.O_RDWR | os.O_CREAT | NO_FOLLOW, waits=waits) as is_mine:
        yield is_mine is not False  # without locks, rely on those of SQLite
