"""Compares the index with the run folders, all of which are read."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from typing import TYPE_CHECKING

from epochal.records.index.refresh import refresh_tables
from epochal.records.index.sql_schema import INTERNAL_COLUMNS, RUN_COLUMNS, create_tables

if TYPE_CHECKING:
    from collections.abc import Iterator

    from epochal.records.index.index import Index
    from epochal.records.index.refresh import ProgressCallback

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
        refresh_tables(fresh, index.root, progress=progress)
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
