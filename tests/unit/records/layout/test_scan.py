from __future__ import annotations

from typing import TYPE_CHECKING

from tests.unit.records.index.made import age_everything, make_run, touch_later

from epochal.records.layout.process import host_name
from epochal.records.layout.run_folders import RECENT_STAMP, IndexedRun, scan_run_folders

if TYPE_CHECKING:
    from pathlib import Path

    import pytest


def know(root: Path) -> dict[str, IndexedRun]:
    found = scan_run_folders(str(root), {})
    return {one.path: IndexedRun(i, one.stamp, "finished", "", 0) for i, one in enumerate(found)}


def test_runs_are_found_at_any_depth(tmp_path: Path) -> None:
    run = make_run(tmp_path)
    (tmp_path / "empty").mkdir()
    (tmp_path / ".hidden" / "20260101-000000-abcd").mkdir(parents=True)
    assert [one.path for one in scan_run_folders(str(tmp_path), {})] == [f"p/a/{run.name}"]


def test_a_root_that_is_a_run_has_the_path_dot(tmp_path: Path) -> None:
    assert [one.path for one in scan_run_folders(str(make_run(tmp_path)), {})] == ["."]


def test_only_changed_folders_are_read_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    age_everything(monkeypatch)
    run = make_run(tmp_path)

    def edit(name: str) -> None:
        with (run / name).open("a") as file:
            file.write(" ")

    known = know(tmp_path)
    assert [one.is_changed for one in scan_run_folders(str(tmp_path), known)] == [False]
    for change in (
        lambda: touch_later(run),
        lambda: edit("README.md"),
        lambda: edit("status.json"),
    ):
        known = know(tmp_path)
        change()
        assert [one.is_changed for one in scan_run_folders(str(tmp_path), known)] == [True]


def test_a_folder_that_just_changed_is_read_again(tmp_path: Path) -> None:
    make_run(tmp_path)
    known = know(tmp_path)
    assert [one.stamp for one in known.values()] == [RECENT_STAMP]
    assert [one.is_changed for one in scan_run_folders(str(tmp_path), known)] == [True]


def test_circular_links_and_links_to_runs_are_left_out(tmp_path: Path) -> None:
    run = make_run(tmp_path)
    (tmp_path / "up").symlink_to(tmp_path)
    (tmp_path / "self").symlink_to(tmp_path / "self")
    (tmp_path / "p" / "z").symlink_to(run)
    assert len(list(scan_run_folders(str(tmp_path), {}))) == 1


def test_inactive_runs_change_only_with_their_folder() -> None:
    def is_inactive(status: str, host: str = host_name()) -> bool:
        return IndexedRun(1, "", status, host, 0).is_inactive

    assert is_inactive("finished")
    assert is_inactive("damaged")
    assert is_inactive("lost")
    assert not is_inactive("lost", "elsewhere")
    assert not is_inactive("running")
    assert not is_inactive("starting")
