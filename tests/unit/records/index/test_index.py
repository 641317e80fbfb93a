from __future__ import annotations

import os
import sqlite3
from contextlib import closing
from typing import TYPE_CHECKING

import pytest
from tests.unit.records.index.made import age_everything, make_run

from epochal.records.folder import machine
from epochal.records.index import Index, index_database

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


@pytest.fixture(autouse=True)
def _old(monkeypatch: pytest.MonkeyPatch) -> None:
    age_everything(monkeypatch)


def runs_of(root: Path) -> list[str]:
    with Index.open(root) as index:
        index.refresh()
        return [run for (run,) in index.fetch("SELECT run FROM runs ORDER BY run")]


def test_an_index_is_built_once_and_can_be_deleted(tmp_path: Path) -> None:
    run = make_run(tmp_path)
    path = tmp_path / ".epochal" / "index.db"
    for _ in range(2):
        assert runs_of(tmp_path) == [run.name]
        assert path.is_file()
        with Index.open(tmp_path) as index:
            assert index.is_built
            assert index.refresh().read == 0
        index_database.put_aside(path)


def test_queries_are_read_only(tmp_path: Path) -> None:
    with (
        Index.open(tmp_path) as index,
        pytest.raises(sqlite3.OperationalError, match="readonly"),
    ):
        index.connection.execute("DELETE FROM runs")


def damage(path: Path) -> None:
    """Overwrite all pages but the first."""
    size = path.stat().st_size
    with path.open("r+b") as file:
        file.seek(4096)
        file.write(os.urandom(size - 4096))
    os.utime(path, ns=(0, 0))  # the clock of files is coarse


def rows_of(root: Path) -> tuple[list[tuple[object, ...]], list[str]]:
    """All rows that a list of runs shows, and the notes."""
    with Index.open(root) as index:
        index.refresh()
        rows = index.fetch("SELECT run, tag, status, step, best, result FROM runs ORDER BY run")
        params = index.fetch("SELECT key, text, number FROM params ORDER BY run_id, key")
        return [*rows, *params, (len(index.search("shop")),)], index.notes


def test_whatever_is_in_the_place_of_the_index_the_runs_are_listed(tmp_path: Path) -> None:
    for tag in ("shop", "other"):
        make_run(tmp_path, tag=tag)
    expected, notes = rows_of(tmp_path)
    assert not notes
    path = tmp_path / ".epochal" / "index.db"
    log, memory = path.with_name("index.db-wal"), path.with_name("index.db-shm")

    def change(statement: str) -> None:
        with closing(sqlite3.connect(path)) as connection, connection:
            connection.executescript(statement)
        os.utime(path, ns=(0, 0))

    def rename_column() -> None:
        """Change a byte of the schema: the tables are readable, but a column has another name."""
        data = path.read_bytes()
        assert data.count(b"is_default INTEGER") == 1
        path.write_bytes(data.replace(b"is_default INTEGER", b"is_defaulu INTEGER"))
        os.utime(path, ns=(0, 0))

    for name, spoil in {
        "a changed schema": rename_column,
        "truncated": lambda: os.truncate(path, 5000),
        "empty": lambda: path.write_bytes(b""),
        "a text": lambda: path.write_text("no database " * 100),
        "a folder": lambda: (path.unlink(), path.mkdir()),
        "a pipe": lambda: (path.unlink(), os.mkfifo(path)),
        "a link to nothing": lambda: (path.unlink(), path.symlink_to("nothing")),
        "another database": lambda: (path.unlink(), change("CREATE TABLE mine (a)")),
        "a trigger": lambda: change(
            "CREATE TRIGGER t AFTER DELETE ON runs BEGIN DELETE FROM params; END; DELETE FROM runs"
        ),
        "a view": lambda: change(
            "ALTER TABLE runs RENAME TO kept; CREATE VIEW runs AS SELECT * FROM kept LIMIT 1"
        ),
        "changed values": lambda: change("UPDATE runs SET tag = 'forged', best = 1"),
        "a log of something else": lambda: log.write_bytes(os.urandom(4096)),
        "a log in a folder": lambda: (log.unlink(missing_ok=True), log.mkdir()),
        "shared memory elsewhere": lambda: (
            memory.unlink(missing_ok=True),
            memory.symlink_to(tmp_path / "mine"),
        ),
    }.items():
        spoil()
        rows, notes = rows_of(tmp_path)
        assert rows == expected, name
        assert len(notes) == 1, name
        assert "rebuilt, the old one is index.db.aside" in notes[0], name
        assert rows_of(tmp_path) == (expected, []), name
    assert not (tmp_path / "mine").exists()


@pytest.mark.parametrize("count", [12, pytest.param(500, marks=pytest.mark.torture)])
def test_a_changed_byte_anywhere_changes_no_list(
    tmp_path: Path, count: int, record_property: Callable[[str, object], None]
) -> None:
    make_run(tmp_path)
    expected, _ = rows_of(tmp_path)
    path = tmp_path / ".epochal" / "index.db"
    num_schema = 0
    for trial in range(count):
        data = bytearray(path.read_bytes())
        schema = data.index(b"CREATE TABLE runs")
        places = (trial * 97 % len(data), schema - trial * 7 % 2000)
        data[places[trial % 2]] ^= 1 << trial % 8
        path.write_bytes(data)
        os.utime(path, ns=(0, 0))
        rows, notes = rows_of(tmp_path)
        assert (rows, len(notes)) == (expected, 1), (trial, places[trial % 2])
        num_schema += trial % 2
    record_property("counted", f"changed bytes of the index: {count}, {num_schema} in its schema")


def test_damage_that_only_reading_reveals_is_rebuilt(tmp_path: Path) -> None:
    run = make_run(tmp_path)
    query = "SELECT runs.run FROM runs JOIN params ON run_id = id LIMIT 1"
    path = tmp_path / ".epochal" / "index.db"
    for refreshes in (True, False):
        runs_of(tmp_path)
        damage(path)
        index_database._write_stamp(path)
        with Index.open(tmp_path) as index:
            if refreshes:
                index.refresh()
            assert index.fetch(query) == [(run.name,)]
            assert "damaged" in index.notes[0]


def test_a_mistake_in_a_query_is_no_damage(tmp_path: Path) -> None:
    with Index.open(tmp_path) as index, pytest.raises(sqlite3.OperationalError, match="no such"):
        index.fetch("SELECT no_column FROM runs")


def test_an_index_that_another_program_locks_is_not_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(index_database, "_BUSY_MILLISECONDS", 1)
    run = make_run(tmp_path)
    runs_of(tmp_path)
    path = tmp_path / ".epochal" / "index.db"
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("PRAGMA locking_mode = EXCLUSIVE")
        other.execute("BEGIN EXCLUSIVE")
        with Index.open(tmp_path) as index:
            index.refresh()
            assert "cannot be written (database is locked)" in index.notes[0]
            assert index.fetch("SELECT run FROM runs") == [(run.name,)]


def test_on_a_network_file_system_there_is_no_write_ahead_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "mounts").write_text("server:/ / nfs4 rw 0 0\n")
    monkeypatch.setattr(machine, "MOUNTS", tmp_path / "mounts")
    run = make_run(tmp_path / "runs")
    with Index.open(tmp_path / "runs") as index:
        index.refresh()
        assert index.is_shared
        assert index.fetch("PRAGMA journal_mode") == [("delete",)]
        assert index.fetch("SELECT run FROM runs") == [(run.name,)]
    assert {path.name for path in (tmp_path / "runs" / ".epochal").glob("index*")} == {
        "index.db",
        "index.db.lock",
        "index.db.stamp",
    }


def test_the_index_is_in_memory_if_it_cannot_be_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = make_run(tmp_path)

    def refuse(root: Path) -> Path:
        raise OSError(30, "Read-only file system", str(root))

    monkeypatch.setattr("epochal.records.index.index.make_epochal_dir", refuse)
    with Index.open(tmp_path) as index:
        index.refresh()
        assert index.path is None
        assert index.fetch("SELECT run FROM runs") == [(run.name,)]
        assert "read-only file system" in index.notes[0]
        with pytest.raises(sqlite3.OperationalError, match="readonly"):
            index.connection.execute("DELETE FROM runs")
    assert not (tmp_path / ".epochal").exists()


def test_a_read_only_index_is_copied_to_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_run(tmp_path)
    runs_of(tmp_path)
    make_run(tmp_path)

    def refuse(*_: object, **__: object) -> None:
        raise sqlite3.OperationalError("attempt to write a readonly database")

    monkeypatch.setattr(index_database, "open_writer", refuse)
    with Index.open(tmp_path) as index:
        refreshed = index.refresh()
        assert (refreshed.total, refreshed.read) == (2, 1)
        assert "readonly" in index.notes[0]


def test_an_index_of_another_user_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make_run(tmp_path)
    runs_of(tmp_path)

    def refuse(path: Path, **_: object) -> None:
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr(index_database, "holding_writer_lock", refuse)
    with Index.open(tmp_path) as index:
        refreshed = index.refresh()
        assert (refreshed.total, refreshed.read) == (1, 0)
        assert "permission denied" in index.notes[0]


def test_an_index_that_another_process_just_rebuilt_is_used(tmp_path: Path) -> None:
    run = make_run(tmp_path)
    runs_of(tmp_path)
    path = tmp_path / ".epochal" / "index.db"
    damage(path)
    index_database._write_stamp(path)
    with Index.open(tmp_path) as late, Index.open(tmp_path) as early:
        early.refresh()
        assert early.notes
        late.fetch("SELECT * FROM runs JOIN params ON run_id = id")
        assert not late.notes
        assert late.fetch("SELECT run FROM runs") == [(run.name,)]


def test_a_missing_folder_is_not_created(tmp_path: Path) -> None:
    with Index.open(tmp_path / "runs") as index:
        assert index.refresh().total == 0
    assert not (tmp_path / "runs").exists()


def test_nothing_is_written_into_the_folder_of_a_run(tmp_path: Path) -> None:
    run = make_run(tmp_path)
    assert runs_of(run) == [run.name]
    assert not (run / ".epochal").exists()


def test_runs_are_found_by_words_of_readme_tag_and_config(tmp_path: Path) -> None:
    make_run(tmp_path, tag="warm", desc="do restarts help?", lr=0.125)
    make_run(tmp_path, tag="cold", desc="调整学习率, tiède", lr=0.25)
    make_run(tmp_path, tag="best", desc="momentum matters")
    cases = {
        "warm": ["warm"],
        "WARM restarts": ["warm"],
        "restart": ["warm"],
        "optim.lr 0.25": ["cold"],
        "学习率": ["cold"],
        "学率": [],
        "tiède": ["cold"],
        "tiede": ["cold"],
        '"; DROP TABLE runs': [],
        "warm OR cold": [],
        "": [],
        "momentum": ["best", "cold", "warm"],
    }
    with Index.open(tmp_path) as index:
        index.refresh()
        tags = dict(index.fetch("SELECT id, tag FROM runs"))
        for words, found in cases.items():
            assert sorted(tags[one] for one in index.search(words)) == found, words
        assert tags[index.search("momentum")[0]] == "best"  # texts of users before defaults


def test_the_last_state_is_used_while_another_process_refreshes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("epochal.records.index.index._MAX_WAIT_SECONDS", 0.0)
    run = make_run(tmp_path)
    runs_of(tmp_path)
    make_run(tmp_path)
    path = tmp_path / ".epochal" / "index.db"
    with index_database.holding_writer_lock(path), Index.open(tmp_path) as index:
        refreshed = index.refresh()
        assert (refreshed.total, refreshed.is_current) == (1, False)
        assert index.fetch("SELECT run FROM runs") == [(run.name,)]


def test_the_first_build_by_another_process_is_awaited(tmp_path: Path) -> None:
    make_run(tmp_path)
    path = tmp_path / ".epochal" / "index.db"
    with Index.open(tmp_path) as index:
        other = index_database.holding_writer_lock(path)
        other.__enter__()
        told: list[str] = []

        def end_the_other(text: str) -> None:
            if not told:
                other.__exit__(None, None, None)
            told.append(text)

        assert index.refresh(end_the_other).total == 1
        assert told[0] == "another process reads the runs: 0 so far"
