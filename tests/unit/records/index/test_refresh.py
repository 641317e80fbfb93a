from __future__ import annotations

import shutil
import sqlite3
from typing import TYPE_CHECKING

import pytest
from tests.unit.records.index.made import age_everything, make_run

from epochal.records import RunFolder, RunWriter
from epochal.records.index.index_database import create_tables
from epochal.records.index.refresh import RefreshResult, refresh_tables

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture
def tables() -> Iterator[sqlite3.Connection]:
    connection = sqlite3.connect(":memory:", isolation_level=None)
    create_tables(connection)
    yield connection
    connection.close()


@pytest.fixture(autouse=True)
def _old(monkeypatch: pytest.MonkeyPatch) -> None:
    age_everything(monkeypatch)


def refresh(tables: sqlite3.Connection, root: Path, *, is_all: bool = False) -> RefreshResult:
    return refresh_tables(tables, root, progress=lambda _: None, is_all=is_all)


def paths(tables: sqlite3.Connection) -> list[str]:
    return [path for (path,) in tables.execute("SELECT path FROM runs ORDER BY path")]


def parts(tables: sqlite3.Connection) -> set[int]:
    """The runs of which anything is kept beside their own row."""
    return {
        one
        for table, name in (("params", "run_id"), ("metrics", "run_id"), ("search", "rowid"))
        for (one,) in tables.execute(f"SELECT {name} FROM {table}")
    }


def test_new_runs_are_read_once(tables: sqlite3.Connection, tmp_path: Path) -> None:
    make_run(tmp_path, tag="a")
    make_run(tmp_path, tag="b")
    messages: list[str] = []
    done = refresh_tables(tables, tmp_path, progress=messages.append)
    assert done == RefreshResult(total=2, read=2)
    assert messages[0] == "looking for runs: 0 so far"
    assert messages[-3:] == [
        "looking for runs: 1 so far",
        "reading runs: 0 of 2",
        "reading runs: 1 of 2",
    ]
    assert refresh(tables, tmp_path) == RefreshResult(total=2, read=0)
    make_run(tmp_path, tag="c")
    assert refresh(tables, tmp_path) == RefreshResult(total=3, read=1)


def test_all_folders_are_read_on_request(tables: sqlite3.Connection, tmp_path: Path) -> None:
    run = make_run(tmp_path)
    refresh(tables, tmp_path)
    (run / "run.json").write_text('{"project": "edited in place"}')
    assert refresh(tables, tmp_path, is_all=True) == RefreshResult(total=1, read=1)
    assert tables.execute("SELECT project FROM runs").fetchall() == [("edited in place",)]


def test_a_deleted_run_is_removed_from_all_tables(
    tables: sqlite3.Connection, tmp_path: Path
) -> None:
    shutil.rmtree(gone := make_run(tmp_path, tag="gone"))
    kept = make_run(tmp_path, tag="kept")
    shutil.copytree(kept, gone)
    refresh(tables, tmp_path)
    shutil.rmtree(gone)
    assert refresh(tables, tmp_path) == RefreshResult(total=1, read=0, removed=1)
    assert paths(tables) == [f"p/kept/{kept.name}"]
    assert parts(tables) == {one for (one,) in tables.execute("SELECT id FROM runs")}


def test_moved_and_copied_runs_are_found(tables: sqlite3.Connection, tmp_path: Path) -> None:
    root = tmp_path / "runs"
    run = make_run(root)
    refresh(tables, root)
    (root / "archive").mkdir()
    run = run.rename(root / "archive" / "best one")
    assert refresh(tables, root) == RefreshResult(total=1, read=1, removed=1)
    assert paths(tables) == ["archive/best one"]
    assert parts(tables) == {one for (one,) in tables.execute("SELECT id FROM runs")}
    (root / "archive").rename(root / "renamed")
    refresh(tables, root)
    assert paths(tables) == ["renamed/best one"]
    shutil.copytree(root / "renamed" / "best one", root / "copy")  # with the same times
    assert refresh(tables, root) == RefreshResult(total=2, read=1)
    root.rename(tmp_path / "moved")
    assert refresh(tables, tmp_path / "moved") == RefreshResult(total=2, read=0)


def test_an_edited_readme_is_read_again(tables: sqlite3.Connection, tmp_path: Path) -> None:
    run = make_run(tmp_path)
    refresh(tables, tmp_path)
    (run / "README.md").write_text("# a\n\nit worked\n")
    assert refresh(tables, tmp_path).read == 1
    assert tables.execute("SELECT desc FROM runs").fetchall() == [("it worked",)]
    assert tables.execute("SELECT rowid FROM search WHERE search MATCH 'worked'").fetchall()


def test_an_active_run_is_read_each_time(
    tables: sqlite3.Connection, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = make_run(tmp_path, status=None)
    refresh(tables, tmp_path)
    writer = RunWriter(RunFolder(run))
    writer.log({"val/loss": 0.125}, 9)
    writer.close()
    assert refresh(tables, tmp_path).read == 0
    assert tables.execute("SELECT last, count FROM metrics").fetchall() == [(0.125, 4)]
    assert tables.execute("SELECT status, points FROM runs").fetchall() == [("running", 4)]
    monkeypatch.setattr("epochal.records.folder.reader.is_owner_alive", lambda *_: False)
    refresh(tables, tmp_path)
    assert tables.execute("SELECT status FROM runs").fetchall() == [("lost",)]


def test_a_damaged_run_is_listed(tables: sqlite3.Connection, tmp_path: Path) -> None:
    run = make_run(tmp_path)
    (run / "status.json").unlink()
    refresh(tables, tmp_path)
    row = tables.execute("SELECT run, status, damage FROM runs").fetchone()
    assert row == (run.name, "damaged", "status.json: missing")


def test_a_name_that_is_not_valid_utf_8_is_escaped(
    tables: sqlite3.Connection, tmp_path: Path
) -> None:
    run = make_run(tmp_path)
    run.rename(run.with_name("caf\udce9"))
    assert refresh(tables, tmp_path) == refresh(tables, tmp_path) == RefreshResult(total=1, read=1)
    assert paths(tables) == ["p/a/caf\\udce9"]


def test_a_run_that_is_deleted_during_a_refresh_is_left_out(
    tables: sqlite3.Connection, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = make_run(tmp_path)

    def delete(text: str) -> None:
        if text.startswith("reading"):
            shutil.rmtree(run)

    refresh_tables(tables, tmp_path, progress=delete)
    assert paths(tables) == []
