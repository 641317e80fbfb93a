"""The SQLite file of the index: inspected, opened, locked and removed."""

from __future__ import annotations

import os
import sqlite3
import sys
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Literal
from urllib.parse import quote

from epochal.records.index.sql_schema import APPLICATION_ID, SCHEMA_VERSION, create_tables

if sys.platform != "win32":
    import fcntl

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

_BUSY_MILLISECONDS = 30_000
_CACHE_KIB = 65_536
_SIDE_FILES = ("-wal", "-shm", "-journal")

IndexFileState = Literal["usable", "missing", "damaged", "foreign", "newer", "older"]


def inspect_index_file(path: Path) -> IndexFileState:
    """The state of the file at ``path``, which other processes may use.

    Raises:
        sqlite3.OperationalError: It cannot be opened, or is locked for long.
    """
    if not path.exists():
        return "missing"
    try:
        connection = open_reader(path)
        try:
            (application,) = connection.execute("PRAGMA application_id").fetchone()
            (version,) = connection.execute("PRAGMA user_version").fetchone()
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
    """A connection for the one process that holds the lock.

    Args:
        path: The file, created if missing.
        is_shared: Whether machines share the file: a write-ahead log needs shared memory.
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
        if not source.exists() or (options != "mode=ro" and _has_log(source)):
            break
        try:
            file = _connect(f"file:{quote(str(source.absolute()))}?{options}")
            try:
                file.backup(memory)
            finally:
                file.close()
            if _is_current_index(memory):
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


def _is_current_index(connection: sqlite3.Connection) -> bool:
    (application,) = connection.execute("PRAGMA application_id").fetchone()
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    return bool((application, version) == (APPLICATION_ID, SCHEMA_VERSION))


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
    """Hold the writer lock in a block; gives False if another process has it, unless ``waits``.

    The operating system releases the lock when its process ends.
    """
    descriptor = os.open(path.with_name(f"{path.name}.lock"), os.O_RDWR | os.O_CREAT, 0o666)
    try:
        yield _lock(descriptor, waits=waits)
    finally:
        os.close(descriptor)


def _lock(descriptor: int, *, waits: bool) -> bool:
    if sys.platform == "win32":  # rely on the locks of SQLite
        return True
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | (0 if waits else fcntl.LOCK_NB))
    except BlockingIOError:
        return False
    except OSError:  # some network file systems cannot lock; rely on the locks of SQLite
        return True
    return True
