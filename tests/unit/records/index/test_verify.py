from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

import pytest
from tests.unit.records.index.made import age_everything, make_run

from epochal.records.index import Index, index_database
from epochal.records.index.index import find_index_errors

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    age_everything(monkeypatch)
    make_run(tmp_path)
    with Index.open(tmp_path) as index:
        index.refresh()
    return tmp_path


def faults(root: Path) -> list[str]:
    with Index.open(root) as index:
        return list(find_index_errors(index, lambda _: None))


def change(root: Path, statement: str) -> None:
    with index_database.writing(root / ".epochal" / "index.db", is_shared=False) as connection:
        connection.execute(statement)


def test_a_current_index_has_no_errors(root: Path) -> None:
    assert faults(root) == []


def test_missing_and_superfluous_runs_are_named(root: Path) -> None:
    shutil.rmtree(root / "p")
    run = make_run(root, tag="new")
    texts = sorted(fault.partition(": ")[2] for fault in faults(root))
    assert texts == ["not in the index", "not on disk"]
    assert f"p/new/{run.name}: not in the index" in faults(root)


def test_differences_are_named(root: Path) -> None:
    found = []
    for statement, what in (
        ("UPDATE runs SET tag = 'x', step = 7", "tag, step"),
        ("UPDATE params SET number = 7 WHERE key = 'optim.lr'", "config"),
        ("DELETE FROM metrics", "metrics"),
        ("UPDATE search SET about = 'x'", "words"),
    ):
        change(root, statement)
        found.append(what)
        (fault,) = faults(root)
        assert fault.endswith(f": differs in {', '.join(found)}")


def test_new_damage_of_a_run_is_named(root: Path) -> None:
    for path in root.rglob("config/*.*"):
        path.unlink()
    (fault,) = faults(root)
    what = ("expanded.*", "provenance.json", "observed.json")
    told = "; ".join(f"config/{name}: missing" for name in what)
    assert f", damage ({told}), " in fault


def test_a_damaged_file_is_reported(root: Path) -> None:
    path = root / ".epochal" / "index.db"
    data = bytearray(path.read_bytes())
    data[3 * 4096 : 4 * 4096] = b"\xff" * 4096
    path.write_bytes(data)
    index_database._write_stamp(path)
    assert faults(root)[0].startswith("the file is damaged: ")


def test_caches_of_runs_do_not_count(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise AssertionError("the cache was read")

    monkeypatch.setattr("epochal.records.metrics.summary.SMALL_FILE_BYTES", 0)
    monkeypatch.setattr("epochal.records.metrics.curve_cache.query_curves", refuse)
    with Index.open(root) as index:
        assert index.refresh(is_all=True).read == 1
        assert list(find_index_errors(index, lambda _: None)) == []
