"""The file of the index: recognised, opened, locked, and replaced when it is of no use."""

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
_SIDES = ("-wal", "-shm", "-journal")

IndexFileState = Literal["usable", "missing", "damaged", "foreign", "newer", "older"]


def inspect_index_file(path: Path) -> IndexFileState:
    """What lies at ``path``; other processes may be at work on it.

    Raises:
        sqlite3.OperationalError: It cannot be opened or is locked for long.
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
        return "missing"  # its maker was killed before the first table
    if application != APPLICATION_ID:
        return "foreign"
    return (
        "usable" if version == SCHEMA_VERSION else "newer" if version > SCHEMA_VERSION else "older"
    )


def is_corruption_error(error: sqlite3.Error) -> bool:
    """Whether an error says that the file is no sound database."""
    code = getattr(error, "sqlite_errorcode", 0) & 0xFF
    return code in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)


def open_reader(path: Path) -> sqlite3.Connection:
    """A connection that cannot change anything."""
    connection = _connect(f"file:{quote(str(path.absolute()))}?mode=ro")
    connection.execute("PRAGMA query_only = ON")
    return connection


def open_writer(path: Path, *, is_shared: bool) -> sqlite3.Connection:
    """A connection for the one process that holds the lock.

    Args:
        path: Of the file, made if it is missing.
        is_shared: Whether machines share the file: a write-ahead log needs memory that all of its
            users see, which they do not have.
    """
    connection = _connect(f"file:{quote(str(path.absolute()))}?mode=rwc")
    connection.execute(f"PRAGMA journal_mode = {'DELETE' if is_shared else 'WAL'}").fetchone()
    connection.execute("PRAGMA synchronous = NORMAL")
    return connection


def truncate_wal(connection: sqlite3.Connection) -> None:
    """Bring what the write-ahead log holds into the file, unless somebody reads from it now."""
    connection.execute("PRAGMA busy_timeout = 0")
    connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()


def open_in_memory(source: Path) -> sqlite3.Connection:
    """An index that is nowhere on disk, with what the one at ``source`` holds, if that is sound."""
    for options in ("mode=ro", "mode=ro&immutable=1"):  # a write-ahead log needs its folder
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
    """Delete the file and what belongs to it; only for who holds the lock."""
    for name in (path.name, *(f"{path.name}{side}" for side in _SIDES)):
        with suppress(FileNotFoundError):
            path.with_name(name).unlink()


@contextmanager
def holding_writer_lock(path: Path, *, waits: bool = False) -> Iterator[bool]:
    """Be the only writer in a block; gives False if another process is, and ``waits`` is not said.

    The lock is one of the operating system: it goes with its process, however that ends.
    """
    descriptor = os.open(path.with_name(f"{path.name}.lock"), os.O_RDWR | os.O_CREAT, 0o666)
    try:
        yield _lock(descriptor, waits=waits)
    finally:
        os.close(descriptor)


def _lock(descriptor: int, *, waits: bool) -> bool:
    if sys.platform == "win32":  # the database's own locks must do
        return True
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | (0 if waits else fcntl.LOCK_NB))
    except BlockingIOError:
        return False
    except OSError:  # some network file systems cannot lock; the database's own locks must do
        return True
    return True
