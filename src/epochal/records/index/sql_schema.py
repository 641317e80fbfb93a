"""The tables of the index: one row per run, its parameters, its metrics, and words to search."""

from __future__ import annotations

import sqlite3

from epochal.errors import RecordError

APPLICATION_ID = 0x45504F43
"""What tells an index from any other SQLite file."""

SCHEMA_VERSION = 4
"""Of the tables; an index of another version is built anew."""

RUN_COLUMNS = {
    "path": "TEXT NOT NULL UNIQUE",  # of the folder, from the folder of all runs on, with slashes
    "run": "TEXT NOT NULL",  # the name of the folder, by which commands find the run
    "project": "TEXT NOT NULL",
    "tag": "TEXT NOT NULL",  # the title of README.md
    "desc": "TEXT NOT NULL",  # what README.md says below its title
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
    "seed": "",  # an integer; as a text if it is no signed one of 64 bits
    "host": "TEXT NOT NULL",
    "parent": "TEXT NOT NULL",  # the name of the run that it came from
    "parent_kind": "TEXT NOT NULL",  # trial, fold, weights, test, ...
    "monitor": "TEXT NOT NULL",
    "best": "REAL",
    "code": "TEXT NOT NULL",  # digest of the snapshot
    "replicate": "TEXT NOT NULL",  # the same for runs that differ only by seed
    "error": "TEXT NOT NULL",  # what ended a failed run, in one line
    "result": "TEXT NOT NULL",  # JSON: the metrics with which it ended
    "points": "INTEGER NOT NULL",  # in metrics.bin, also those that were done again
    "damage": "TEXT NOT NULL",  # one line for each file that is missing or cannot be read
    "stamp": "TEXT NOT NULL",  # of the files it was read from; they are read again when it differs
}
"""The columns of ``runs`` beside ``id``. A text that is not known is empty, a number is NULL."""

MIN_INTEGER, MAX_INTEGER = -(2**63), 2**63 - 1
"""Between which integers are kept exactly; a config may hold larger ones, up to 2**64."""

INTERNAL_COLUMNS = ("stamp",)
"""Columns that are nobody's business outside of the index."""

_TABLES = (
    f"CREATE TABLE runs (id INTEGER PRIMARY KEY, "
    f"{', '.join(f'{name} {kind}' for name, kind in RUN_COLUMNS.items())})",
    "CREATE INDEX runs_by_name ON runs (run)",
    # One row per leaf of the expanded config; a list also as a whole, as JSON text. Booleans have
    # the text true or false and the number 1 or 0. Numbers are kept as they are: a column of REAL
    # would round large integers.
    "CREATE TABLE params (run_id INTEGER NOT NULL, key TEXT NOT NULL, text TEXT, number, "
    "is_default INTEGER NOT NULL, PRIMARY KEY (run_id, key)) WITHOUT ROWID",
    # Everything about a key lies together, so that a column of all runs is read at once.
    "CREATE INDEX params_by_key ON params (key, text, number, is_default)",
    # One row per series; `low` and `high` without NaN.
    "CREATE TABLE metrics (run_id INTEGER NOT NULL, name TEXT NOT NULL, last REAL, low REAL, "
    "high REAL, last_step INTEGER, count INTEGER, PRIMARY KEY (run_id, name)) WITHOUT ROWID",
    "CREATE INDEX metrics_by_name ON metrics (name, last)",
    "CREATE TABLE state (is_built INTEGER NOT NULL)",  # whether all runs were read once
    "INSERT INTO state VALUES (0)",
    # What people wrote, what somebody set, what was left at its default; rowid is the run's id.
    "CREATE VIRTUAL TABLE search USING fts5 (about, given, defaults, "
    "tokenize = 'unicode61 remove_diacritics 2')",
)


def create_tables(connection: sqlite3.Connection) -> None:
    """Make the tables in an empty database, and mark it as an index.

    Raises:
        RecordError: SQLite cannot search texts.
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
