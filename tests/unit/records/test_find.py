from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from tests.unit.records.index.made import make_run

from epochal.errors import RecordError
from epochal.records import find_runs, read_run
from epochal.records.find import resolve_run
from epochal.records.index import Index, index_database


@pytest.fixture(params=["with an index", "without one"])
def root(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """Three runs; the newest is not in the index."""
    for name in ("20260101-000000-aaaa", "20260101-000000-aabb"):
        make_run(tmp_path).rename(tmp_path / name)
    if request.param == "with an index":
        with Index.open(tmp_path) as index:
            index.refresh()
    make_run(tmp_path).rename(tmp_path / "best")
    return tmp_path


def test_a_run_is_found_by_its_id_a_part_of_it_or_as_the_last(root: Path) -> None:
    for name, found in {
        "20260101-000000-aaaa": "20260101-000000-aaaa",
        "bb": "20260101-000000-aabb",
        "best": "best",
        "last": "best",
    }.items():
        assert resolve_run(name, root) == root / found, name
        assert read_run(name, root).path == root / found


def test_a_tag_means_its_newest_training_and_tilde_the_ones_before(tmp_path: Path) -> None:
    wide, other = make_run(tmp_path, tag="wide"), make_run(tmp_path, tag="deep net")
    newer, newest = make_run(tmp_path, tag="wide"), make_run(tmp_path, tag="deep")
    test = make_run(tmp_path, tag="wide", runner="test")
    for name, found in {
        "wide": newer,
        "wide~0": newer,
        "wide~1": wide,
        "last": newest,
        "last~1": newer,
        "last~3": wide,
        "deep": newest,
        "net": other,
        test.name: test,
    }.items():
        assert resolve_run(name, tmp_path) == found, name
    with pytest.raises(RecordError, match=r"last~4: only 4 runs in .*\n.*epochal runs"):
        resolve_run("last~4", tmp_path)
    with pytest.raises(RecordError, match="wide~2: only 2 runs of 'wide'"):
        resolve_run("wide~2", tmp_path)
    with pytest.raises(RecordError, match="ep: matches 2 runs"):  # no id has a p
        resolve_run("ep", tmp_path)
    assert resolve_run("last", tmp_path, is_wanted=lambda path: path == other) == other
    assert resolve_run("last", tmp_path, is_wanted=lambda path: False) == newest
    with pytest.raises(RecordError, match="last~1: only 1 run that this command can use in "):
        resolve_run("last~1", tmp_path, is_wanted=lambda path: path == other)


def test_evaluations_are_the_last_run_only_without_a_training(tmp_path: Path) -> None:
    make_run(tmp_path, tag="a", runner="predict")
    test = make_run(tmp_path, tag="a", runner="test")
    assert resolve_run("last", tmp_path) == test


def test_the_project_file_says_where_runs_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "pyproject.toml").write_text('[tool.epochal]\nruns_dir = "out/runs"\n')
    path = make_run(tmp_path / "out" / "runs")
    (tmp_path / "src").mkdir()
    for folder, shown in ((tmp_path, "out/runs"), (tmp_path / "src", "../out/runs")):
        monkeypatch.chdir(folder)
        assert read_run("last").path == Path(shown) / path.relative_to(tmp_path / "out" / "runs")


def test_a_full_id_wins_over_longer_ones(root: Path) -> None:
    make_run(root).rename(root / "best-2")
    assert resolve_run("best", root) == root / "best"


def test_a_path_needs_no_root(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for path in (root / "best", str(root / "best")):
        assert read_run(path, root / "elsewhere").path == root / "best"
    monkeypatch.chdir(root / "best")
    assert read_run(".").summary.tag == "a"


def test_a_name_of_several_runs_is_refused_with_their_paths(root: Path) -> None:
    with pytest.raises(RecordError, match=r"-aa: matches 2 runs in .*\n.*-aaaa\n.*-aabb"):
        resolve_run("-aa", root)
    for _ in range(8):
        make_run(root)
    with pytest.raises(RecordError, match=r"matches 10 runs(.*\n)*  and 2 older ones$"):
        resolve_run("20", root)


def test_an_unknown_name_is_refused_with_the_nearest_one(root: Path) -> None:
    with pytest.raises(RecordError, match=r"besd: no such run in .*\n  did you mean 'best'"):
        resolve_run("besd", root)
    for name in ("", "zzz", "a\0b", "no/such/path"):
        with pytest.raises(RecordError, match="no such run in"):
            read_run(name, root)


def test_a_folder_without_runs_says_how_to_start_one(tmp_path: Path) -> None:
    with pytest.raises(RecordError, match=r"no runs here\n  start one with `epochal run CONFIG`"):
        resolve_run("last", tmp_path)
    assert not (tmp_path / ".epochal").exists()


def test_an_index_that_another_process_refreshes_is_not_used(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("epochal.records.index.index._MAX_WAIT_SECONDS", 0.0)
    (root / ".epochal").mkdir(exist_ok=True)
    with index_database.holding_writer_lock(root / ".epochal" / "index.db"):
        assert resolve_run("best", root) == root / "best"


def test_a_name_that_is_not_valid_utf_8_is_found(root: Path) -> None:
    make_run(root).rename(root / "caf\udce9")
    assert resolve_run("caf", root) == root / "caf\udce9"


def test_runs_are_found_from_any_level(tmp_path: Path) -> None:
    path = make_run(tmp_path / "runs")
    (path / "media" / "20260101-000000-0000").mkdir()  # inside of a run
    (tmp_path / "runs" / "loop").symlink_to(tmp_path / "runs")
    (tmp_path / "runs" / "other").symlink_to(path.parent)
    for level in ("", "runs", "runs/p", "runs/p/a", f"runs/p/a/{path.name}", "runs/other"):
        assert [run.id for run in find_runs(tmp_path / level)] == [path.name], level


def test_runs_are_sorted_by_start(tmp_path: Path) -> None:
    first, second = make_run(tmp_path, tag="b"), make_run(tmp_path, tag="a")
    assert [run.path for run in find_runs(tmp_path)] == [first, second]


def test_missing_empty_and_unreadable_folders_have_no_runs(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    for name in ("none", "", "file"):
        assert find_runs(tmp_path / name) == [], name
    if os.geteuid() != 0:  # root may read everything
        (tmp_path / "secret").mkdir(mode=0)
        assert find_runs(tmp_path) == []


def test_finding_runs_imports_neither_numpy_nor_sqlite(tmp_path: Path) -> None:
    make_run(tmp_path)
    code = (
        "import sys, pathlib; from epochal.records import find_runs\n"
        f"assert find_runs(pathlib.Path({str(tmp_path)!r}))\n"
        "sys.exit(bool({'numpy', 'torch', 'ruamel', 'sqlite3'} & set(sys.modules)))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_public_readers_are_exported() -> None:
    from epochal import records

    assert all(callable(getattr(records, name)) for name in records.__all__ if name != "Status")
    with pytest.raises(AttributeError, match="has no attribute 'zooom'"):
        records.zooom  # noqa: B018
