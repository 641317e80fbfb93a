"""Tests of the database of a project: versions, damage, and files that cannot be written."""

from __future__ import annotations

import sqlite3
from typing import TYPE_CHECKING

import pytest

from epochal.errors import RecordError
from epochal.records.project import project_database
from epochal.records.project.project_database import get_database_path, open_database
from epochal.records.project.result_tables import ResultTables

if TYPE_CHECKING:
    from pathlib import Path


def test_a_database_of_an_earlier_version_gets_the_new_tables(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(project_database, "_MIGRATIONS", project_database._MIGRATIONS[:1])
        patch.setattr(project_database, "SCHEMA_VERSION", 1)
        old = open_database(tmp_path)
        old.execute("INSERT INTO settings VALUES ('is_paused', '1')")
        old.close()
    assert ResultTables(tmp_path).list_tables() == []
    new = open_database(tmp_path)
    assert [*map(tuple, new.execute("SELECT name, value FROM settings"))] == [("is_paused", "1")]
    assert new.execute("PRAGMA user_version").fetchone()[0] == 2
    new.close()


def test_reading_creates_no_database(tmp_path: Path) -> None:
    tables = ResultTables(tmp_path)
    assert tables.list_tables() == []
    assert tables.find("results") is None
    assert not list(tmp_path.iterdir())


def test_a_database_that_cannot_be_used_is_explained_and_not_touched(tmp_path: Path) -> None:
    path = get_database_path(tmp_path)
    tables = ResultTables(tmp_path)
    tables.create("results")
    whole = path.read_bytes()
    for content, message in (
        (b"no database" * 1000, "move it away to start an empty one"),
        (whole[:5000] + b"\xff" * (len(whole) - 5000), "project.db"),
    ):
        for suffix in ("-wal", "-shm"):
            path.with_name(path.name + suffix).unlink(missing_ok=True)
        path.write_bytes(content)
        with pytest.raises(RecordError, match=message):
            tables.list_tables()
        assert path.read_bytes() == content
    path.unlink()
    path.mkdir()
    with pytest.raises(RecordError, match="check its permissions and the space on the disk"):
        tables.create("other")


def test_a_damaged_table_names_the_command_that_removes_it(tmp_path: Path) -> None:
    tables = ResultTables(tmp_path)
    for content in ("{", "[]", '{"columns": ["a"], "rows": [[]]}', '{"columns": 1, "rows": []}'):
        tables.create("results")
        with sqlite3.connect(get_database_path(tmp_path)) as connection:
            connection.execute("UPDATE result_tables SET content = ?", (content,))
        connection.close()
        with pytest.raises(RecordError, match="'results' is damaged\n  remove it: epochal table"):
            tables.get("results")
        tables.remove("results")
    assert tables.list_tables() == []
