"""The tables of the index: runs, parameters, metrics, and text to search."""

from __future__ import annotations

import sqlite3

from epochal.errors import RecordError

APPLICATION_ID = 0x45504F43
"""Distinguishes an index from other SQLite files."""

SCHEMA_VERSION = 4
"""Version of the tables; an index of another version is rebuilt."""

RUN_COLUMNS = {
    "path": "TEXT NOT NULL UNIQUE",  # relative to the folder of all runs, with slashes
    "run": "TEXT NOT NULL",  # the id
    "project": "TEXT NOT NULL",
    "tag": "TEXT NOT NULL",  # the title of README.md
    "desc": "TEXT NOT NULL",  # the text of README.md
    "variant": "TEXT NOT NULL",
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
    """Create the tables in an empty database, and mark it as an index.

    Raises:
        RecordError: SQLite has no full-text search.
    """
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
