from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from tests.unit.records.index.made import make_run

from epochal.errors import RecordError
from epochal.records.find import resolve_run
from epochal.records.index import Index
from epochal.records.index import database as store

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture(params=["with an index", "without one"])
def root(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """Three runs of which the newest was not there when the index was built."""
    for name in ("20260101-000000-aaaa", "20260101-000000-aabb"):
        make_run(tmp_path).rename(tmp_path / name)
    if request.param == "with an index":
        with Index.open(tmp_path) as index:
            index.refresh()
    make_run(tmp_path).rename(tmp_path / "best")
    return tmp_path


def test_a_run_is_found_by_its_name_a_part_of_it_or_as_the_last(root: Path) -> None:
    for name, found in [
        ("20260101-000000-aaaa", "20260101-000000-aaaa"),
        ("bb", "20260101-000000-aabb"),
        ("best", "best"),
        ("last", "best"),
    ]:
        assert resolve_run(name, root) == root / found


def test_a_name_of_several_runs_is_refused_with_their_paths(root: Path) -> None:
    with pytest.raises(RecordError, match=r"-aa: fits 2 runs in .*\n.*-aaaa\n.*-aabb"):
        resolve_run("-aa", root)


def test_an_unknown_name_is_refused_with_the_nearest_one(root: Path) -> None:
    with pytest.raises(RecordError, match=r"besd: no such run in .*\n  did you mean 'best'"):
        resolve_run("besd", root)


def test_a_folder_without_runs_is_told(tmp_path: Path) -> None:
    with pytest.raises(RecordError, match="no runs here"):
        resolve_run("last", tmp_path)
    assert not (tmp_path / ".epochal").exists()


def test_an_index_that_others_bring_up_to_date_is_not_relied_on(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("epochal.records.index.index._MAX_WAIT_SECONDS", 0.0)
    (root / ".epochal").mkdir(exist_ok=True)
    with store.holding_writer_lock(root / ".epochal" / "index.db"):
        assert resolve_run("best", root) == root / "best"


def test_a_name_that_is_no_text_is_found_too(root: Path) -> None:
    make_run(root).rename(root / "caf\udce9")
    assert resolve_run("caf", root) == root / "caf\udce9"
