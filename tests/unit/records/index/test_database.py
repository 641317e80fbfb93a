from __future__ import annotations

import sqlite3
import subprocess
import sys
from contextlib import closing
from typing import TYPE_CHECKING

import pytest

from epochal.records.index.database import (
    SCHEMA_VERSION,
    create_tables,
    holding_writer_lock,
    inspect_index_file,
    open_in_memory,
    open_reader,
    open_writer,
    remove_index_file,
)

if TYPE_CHECKING:
    from pathlib import Path


def make(path: Path, *, is_shared: bool = False, version: int = SCHEMA_VERSION) -> None:
    with closing(open_writer(path, is_shared=is_shared)) as connection:
        create_tables(connection)
        connection.execute(f"PRAGMA user_version = {version}")
        connection.execute("INSERT INTO metrics (run_id, name, last) VALUES (1, 'val/loss', 0.5)")


def test_the_state_of_a_file_is_recognised(tmp_path: Path) -> None:
    def foreign(path: Path) -> None:
        with closing(sqlite3.connect(path)) as connection:
            connection.execute("CREATE TABLE mine (a)")

    for state, write in (
        ("usable", make),
        ("missing", lambda path: None),
        ("missing", lambda path: path.touch()),
        ("damaged", lambda path: path.write_text("no database " * 100)),
        ("foreign", foreign),
        ("newer", lambda path: make(path, version=SCHEMA_VERSION + 1)),
        ("older", lambda path: make(path, version=SCHEMA_VERSION - 1)),
    ):
        remove_index_file(tmp_path / "index.db")
        write(tmp_path / "index.db")
        assert inspect_index_file(tmp_path / "index.db") == state


def test_a_shared_index_has_no_write_ahead_log(tmp_path: Path) -> None:
    for is_shared, mode in ((True, "delete"), (False, "wal")):
        path = tmp_path / f"{mode}.db"
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


def test_an_index_in_memory_is_copied_from_a_usable_file(tmp_path: Path) -> None:
    path = tmp_path / "index.db"
    for text in (None, "", "no database at all " * 100):
        if text is not None:
            path.write_text(text)
        with closing(open_in_memory(path)) as connection:
            assert connection.execute("SELECT last FROM metrics").fetchall() == [], text
    path.unlink()
    make(path)
    with closing(open_in_memory(path)) as connection:
        assert connection.execute("SELECT last FROM metrics").fetchall() == [(0.5,)]


def test_removing_an_index_removes_its_side_files(tmp_path: Path) -> None:
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


def test_the_lock_of_a_killed_writer_is_released(tmp_path: Path) -> None:
    script = (
        "import os, sys\nfrom pathlib import Path\n"
        "from epochal.records.index.database import holding_writer_lock\n"
        "with holding_writer_lock(Path(sys.argv[1])): os.kill(os.getpid(), 9)"
    )
    path = tmp_path / "index.db"
    assert subprocess.run([sys.executable, "-c", script, str(path)], check=False).returncode == -9
    with holding_writer_lock(path) as is_mine:
        assert is_mine
