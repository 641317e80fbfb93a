"""Tests of ``epochal index``."""

from __future__ import annotations

import json
import shutil
import sqlite3
from typing import TYPE_CHECKING

import pytest
from tests.unit.records.index.made import make_run

from epochal.records.folder import machine
from epochal.records.layout import run_folders

if TYPE_CHECKING:
    from pathlib import Path

    from small_project import Command


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with two runs that are old enough to be trusted as they are."""
    monkeypatch.setattr(run_folders, "_RECENT_SECONDS", 0.0)
    make_run(tmp_path / "runs", tag="a")
    make_run(tmp_path / "runs", tag="b")
    return tmp_path / "runs"


def test_number_of_runs_read_is_printed(root: Path, epochal: Command) -> None:
    first = epochal("index", "--runs-dir", root).out.splitlines()
    assert first[0].startswith(f"2 runs in the index ({root / '.epochal' / 'index.db'}, ")
    assert first[1].startswith("2 read, 0 removed, in ")
    shutil.rmtree(root / "p" / "a")
    assert "0 read, 1 removed" in epochal("index", "--runs-dir", root).out


def test_rebuild_reads_all_runs(root: Path, epochal: Command) -> None:
    epochal("index", "--runs-dir", root)
    done = json.loads(epochal("index", "rebuild", "--runs-dir", root, "--json").out)
    assert (done["runs"], done["read"], done["is_current"]) == (2, 2, True)


def test_where_prints_only_the_path(root: Path, epochal: Command) -> None:
    done = epochal("index", "where", "--runs-dir", root)
    assert done.out == f"{root / '.epochal' / 'index.db'}\n"


def test_verify_finds_changes_that_refresh_misses(root: Path, epochal: Command) -> None:
    done = epochal("index", "verify", "--runs-dir", root)
    assert (done.code, "it agrees with the folders" in done.out) == (0, True)
    (run,) = (root / "p" / "a").iterdir()
    (run / "run.json").write_text('{"tag": "x", "seed": 3}')
    done = epochal("index", "verify", "--runs-dir", root)
    assert done.code == 74
    assert f"p/a/{run.name}: differs in project, seed, monitor" in done.out
    assert done.out.endswith("`epochal index rebuild` reads all runs again\n")
    epochal("index", "rebuild", "--runs-dir", root)
    assert epochal("index", "verify", "--runs-dir", root).code == 0


def test_damaged_index_is_replaced_with_a_note(root: Path, epochal: Command) -> None:
    path = root / ".epochal" / "index.db"
    path.parent.mkdir()
    path.write_text("no database " * 100)
    done = epochal("index", "--runs-dir", root)
    assert (done.code, "2 runs" in done.out) == (0, True)
    assert f"{path}: changed since its last refresh, or from another version; rebuilt" in done.out


def test_network_file_system_is_noted(
    root: Path, epochal: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "mounts").write_text("server:/ / nfs4 rw 0 0\n")
    monkeypatch.setattr(machine, "MOUNTS", tmp_path / "mounts")
    assert "on a network file system" in epochal("index", "--runs-dir", root).out


def test_index_of_a_read_only_folder_is_in_memory_with_a_note(
    root: Path, epochal: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert epochal("index", "--runs-dir", root).code == 0

    def refuse(*_: object, **__: object) -> None:
        raise sqlite3.OperationalError("attempt to write a readonly database")

    monkeypatch.setattr("epochal.records.index.index_database.open_writer", refuse)
    done = epochal("index", "rebuild", "--runs-dir", root)
    assert done.code == 0
    assert done.out.startswith("2 runs in the index (in memory)")
    assert "index.db cannot be written" in done.out


def test_missing_folder_is_no_error(tmp_path: Path, epochal: Command) -> None:
    done = epochal("index", "--runs-dir", tmp_path / "none")
    assert done.out.startswith("0 runs in the index (in memory)")
    assert not (tmp_path / "none").exists()


def test_an_unknown_action_is_refused(epochal: Command) -> None:
    done = epochal("index", "purge")
    assert (done.code, "choose from 'refresh', 'rebuild'" in done.err) == (2, True)
