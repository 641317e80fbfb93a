from __future__ import annotations

import sqlite3
import subprocess
import sys
from contextlib import closing
from typing import TYPE_CHECKING

import pytest

from epochal.records.index.database import (
    holding_writer_lock,
    inspect_index_file,
    open_in_memory,
    open_reader,
    open_writer,
    remove_index_file,
)
from epochal.records.index.schema import SCHEMA_VERSION, create_tables

if TYPE_CHECKING:
    from pathlib import Path


def make(path: Path, *, is_shared: bool = False, version: int = SCHEMA_VERSION) -> None:
    with closing(open_writer(path, is_shared=is_shared)) as connection:
        create_tables(connection)
        connection.execute(f"PRAGMA user_version = {version}")
        connection.execute("INSERT INTO metrics (run_id, name, last) VALUES (1, 'val/loss', 0.5)")


def test_an_index_is_recognised(tmp_path: Path) -> None:
    make(tmp_path / "index.db")
    assert inspect_index_file(tmp_path / "index.db") == "usable"


def test_a_file_that_is_not_there_is_missing(tmp_path: Path) -> None:
    assert inspect_index_file(tmp_path / "index.db") == "missing"


def test_an_empty_file_is_missing(tmp_path: Path) -> None:
    (tmp_path / "index.db").touch()
    assert inspect_index_file(tmp_path / "index.db") == "missing"


def test_something_else_is_damaged(tmp_path: Path) -> None:
    (tmp_path / "index.db").write_text("these are the voyages " * 100)
    assert inspect_index_file(tmp_path / "index.db") == "damaged"


def test_another_database_is_foreign(tmp_path: Path) -> None:
    with closing(sqlite3.connect(tmp_path / "index.db")) as connection:
        connection.execute("CREATE TABLE mine (a)")
    assert inspect_index_file(tmp_path / "index.db") == "foreign"


@pytest.mark.parametrize(
    ("version", "state"), [(SCHEMA_VERSION + 1, "newer"), (SCHEMA_VERSION - 1, "older")]
)
def test_another_version_is_told(tmp_path: Path, version: int, state: str) -> None:
    make(tmp_path / "index.db", version=version)
    assert inspect_index_file(tmp_path / "index.db") == state


@pytest.mark.parametrize(("is_shared", "mode"), [(True, "delete"), (False, "wal")])
def test_what_machines_share_has_no_write_ahead_log(
    tmp_path: Path, is_shared: bool, mode: str
) -> None:
    path = tmp_path / "index.db"
    make(path, is_shared=not is_shared)
    with closing(open_writer(path, is_shared=is_shared)) as connection:
        assert connection.execute("PRAGMA journal_mode").fetchone() == (mode,)


def test_a_reader_cannot_write(tmp_path: Path) -> None:
    make(tmp_path / "index.db")
    with (
        closing(open_reader(tmp_path / "index.db")) as connection,
        pytest.raises(sqlite3.OperationalError, match="readonly"),
    ):
        connection.execute("DELETE FROM runs")


def test_an_index_in_memory_begins_with_what_is_on_disk(tmp_path: Path) -> None:
    make(tmp_path / "index.db")
    with closing(open_in_memory(tmp_path / "index.db")) as connection:
        assert connection.execute("SELECT last FROM metrics").fetchall() == [(0.5,)]


@pytest.mark.parametrize("text", [None, "", "no database at all " * 100])
def test_an_index_in_memory_is_empty_where_there_is_nothing_sound(
    tmp_path: Path, text: str | None
) -> None:
    if text is not None:
        (tmp_path / "index.db").write_text(text)
    with closing(open_in_memory(tmp_path / "index.db")) as connection:
        assert connection.execute("SELECT * FROM runs").fetchall() == []


def test_a_removed_index_leaves_nothing(tmp_path: Path) -> None:
    for name in ("index.db", "index.db-wal", "index.db-shm"):
        (tmp_path / name).touch()
    remove_index_file(tmp_path / "index.db")
    assert list(tmp_path.iterdir()) == []


def test_there_is_one_writer_at_a_time(tmp_path: Path) -> None:
    path = tmp_path / "index.db"
    with holding_writer_lock(path) as is_mine:
        assert is_mine
        with holding_writer_lock(path) as is_mine_too:
            assert not is_mine_too
    with holding_writer_lock(path) as is_mine:
        assert is_mine


def test_a_killed_writer_holds_nothing(tmp_path: Path) -> None:
    script = (
        "import os, sys\nfrom pathlib import Path\n"
        "from epochal.records.index.database import holding_writer_lock\n"
        "with holding_writer_lock(Path(sys.argv[1])): os.kill(os.getpid(), 9)"
    )
    path = tmp_path / "index.db"
    subprocess.run([sys.executable, "-c", script, str(path)], check=False)
    with holding_writer_lock(path) as is_mine:
        assert is_mine
