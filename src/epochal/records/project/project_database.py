"""The SQLite file ``.epochal/project.db`` with the queue and the result tables."""

from __future__ import annotations

import sqlite3
from contextlib import contextmanager
from typing import TYPE_CHECKING
from urllib.parse import quote

from epochal.errors import RecordError
from epochal.records.folder.machine import find_file_system, is_network_file_system
from epochal.records.index.index_database import is_damage
from epochal.records.layout.os_errors import describe_os_error
from epochal.records.layout.run_folders import EPOCHAL_DIR, make_epochal_dir

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

PROJECT_FILE = "project.db"
APPLICATION_ID = 0x45504F50
"""Distinguishes the database from other SQLite files, such as the index."""

_BUSY_MILLISECONDS = 30_000

_QUEUE = (
    "CREATE TABLE jobs ("
    "id INTEGER PRIMARY KEY AUTOINCREMENT, "
    "title TEXT NOT NULL, "
    "file TEXT NOT NULL, "  # of the frozen job
    "seal TEXT NOT NULL, "  # of this file, by the user who added the job
    "state TEXT NOT NULL DEFAULT 'waiting', "
    "priority INTEGER NOT NULL, "
    "place REAL NOT NULL, "  # the order of jobs with the same priority
    "after TEXT NOT NULL, "  # JSON: ids of jobs, folders of runs
    "preferred TEXT NOT NULL, "
    "retries INTEGER NOT NULL, "  # how many more after a failure
    "failures INTEGER NOT NULL DEFAULT 0, "
    "starts INTEGER NOT NULL DEFAULT 0, "
    "not_before REAL NOT NULL DEFAULT 0, "  # seconds since 1970
    "is_paused INTEGER NOT NULL DEFAULT 0, "
    "is_unwanted INTEGER NOT NULL DEFAULT 0, "  # whether a running job should stop
    "added REAL NOT NULL, "
    "started REAL, "
    "ended REAL, "
    "device TEXT NOT NULL DEFAULT '', "
    "environment TEXT NOT NULL DEFAULT '{}', "  # JSON: variables of the first start
    "run_dir TEXT NOT NULL DEFAULT '', "
    "code INTEGER, "  # exit code of the last process
    "error TEXT NOT NULL DEFAULT '')",
    "CREATE INDEX jobs_by_state ON jobs (state, priority, place)",
    "CREATE TABLE settings (name TEXT PRIMARY KEY, value TEXT NOT NULL)",
)
_RESULT_TABLES = (
    "CREATE TABLE result_tables ("
    "name TEXT PRIMARY KEY, "
    "version INTEGER NOT NULL UNIQUE, "  # of the last change, counted over all tables
    "content TEXT NOT NULL, "  # JSON: columns, rows of cells
    "changed TEXT NOT NULL)",
)
_MIGRATIONS = (_QUEUE, _RESULT_TABLES)
"""The statements of each version; an older file is upgraded with the missing ones."""

SCHEMA_VERSION = len(_MIGRATIONS)


def get_database_path(runs_dir: Path) -> Path:
    """The path of the database of a folder of runs; it may not exist yet."""
    return runs_dir / EPOCHAL_DIR / PROJECT_FILE


def open_database(runs_dir: Path) -> sqlite3.Connection:
    """A connection; the file is created if it is missing.

    Raises:
        RecordError: The file is damaged, not a database of Epochal, of a later version, or cannot
            be written.
    """
    path = get_database_path(runs_dir.absolute())
    try:
        make_epochal_dir(runs_dir.absolute())
        connection = sqlite3.connect(
            f"file:{quote(str(path))}?mode=rwc", uri=True, isolation_level=None
        )
    except OSError as error:
        what = f"{path}: cannot be written: {describe_os_error(error)}"
        raise RecordError(f"{what}\n  check the permissions of the folder") from error
    except sqlite3.DatabaseError as error:
        raise explain_damage(path, error) from error
    try:
        connection.row_factory = sqlite3.Row
        connection.execute(f"PRAGMA busy_timeout = {_BUSY_MILLISECONDS}")
        connection.execute("PRAGMA synchronous = FULL")  # a job that was accepted is not lost
        _create_tables(connection, path)
    except BaseException as error:
        connection.close()
        if not isinstance(error, sqlite3.DatabaseError):
            raise
        raise explain_damage(path, error) from error
    return connection


def explain_damage(path: Path, error: sqlite3.DatabaseError) -> RecordError:
    """The error for a file that SQLite cannot use."""
    what = f"{path}: cannot be used: {error}"
    hint = "check its permissions and the space on the disk, and try again"
    if is_damage(error):
        hint = "it holds the queue and the result tables; move it away to start an empty one"
    return RecordError(f"{what}\n  {hint}")


def _read_version(connection: sqlite3.Connection, path: Path) -> int:
    """The version of the tables; 0 for an empty file."""
    (application,) = connection.execute("PRAGMA application_id").fetchone()
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    if application == APPLICATION_ID and 0 < version <= SCHEMA_VERSION:
        return int(version)
    (tables,) = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
    if application == APPLICATION_ID:
        raise RecordError(
            f"{path}: was written by another version of Epochal\n  use that version, or update"
        )
    if tables:
        raise RecordError(f"{path}: is not a database of Epochal\n  move it away")
    return 0


def _create_tables(connection: sqlite3.Connection, path: Path) -> None:
    version = _read_version(connection, path)
    if version == SCHEMA_VERSION:
        return
    # A write-ahead log needs shared memory, which machines do not have in common.
    is_shared = is_network_file_system(find_file_system(path.parent)[0])
    if not version:
        connection.execute(f"PRAGMA journal_mode = {'DELETE' if is_shared else 'WAL'}").fetchone()
    with writing(connection):
        version = _read_version(connection, path)  # another process may have been faster
        for statements in _MIGRATIONS[version:]:
            for statement in statements:
                connection.execute(statement)
        connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
        connection.execute(f"PRAGMA user_version = {SCHEMA_VERSION}")


@contextmanager
def writing(connection: sqlite3.Connection) -> Iterator[None]:
    """An exclusive write transaction."""
    connection.execute("BEGIN IMMEDIATE")
    try:
        yield
    except BaseException:
        connection.execute("ROLLBACK")
        raise
    connection.execute("COMMIT")
