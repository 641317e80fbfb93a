from __future__ import annotations

import sqlite3
from contextlib import closing

import pytest

from epochal.errors import RecordError
from epochal.records.index import index_database
from epochal.records.index.index_database import RUN_COLUMNS, create_tables


def test_tables_have_the_columns_of_queries() -> None:
    with closing(sqlite3.connect(":memory:")) as connection:
        create_tables(connection)
        for table, names in {
            "runs": {"id", *RUN_COLUMNS},
            "params": {"run_id", "key", "text", "number", "is_default"},
            "metrics": {"run_id", "name", "last", "low", "high", "last_step", "count"},
            "search": {"about", "given", "defaults"},
        }.items():
            found = {row[1] for row in connection.execute(f"PRAGMA table_info({table})")}
            assert found == names


def test_sqlite_without_full_text_search_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    tables = tuple(one.replace("fts5 (", "no_fts5 (") for one in index_database._TABLES)
    monkeypatch.setattr(index_database, "_TABLES", tables)
    with (
        closing(sqlite3.connect(":memory:")) as connection,
        pytest.raises(RecordError, match="built without FTS5"),
    ):
        create_tables(connection)
