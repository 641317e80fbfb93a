from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from tests.unit.records.index.made import age_everything, make_run, touch_later

from epochal.records.index.scan import RECENT_STAMP, IndexedRun, scan_run_folders
from epochal.records.layout.process import host_name

if TYPE_CHECKING:
    from pathlib import Path


def know(root: Path) -> dict[str, IndexedRun]:
    found = scan_run_folders(str(root), {})
    return {one.path: IndexedRun(i, one.stamp, "finished", "", 0) for i, one in enumerate(found)}


def test_runs_are_found_wherever_they_lie(tmp_path: Path) -> None:
    run = make_run(tmp_path)
    (tmp_path / "empty").mkdir()
    (tmp_path / ".hidden" / "20260101-000000-abcd").mkdir(parents=True)
    assert [one.path for one in scan_run_folders(str(tmp_path), {})] == [f"p/a/{run.name}"]


def test_a_folder_that_is_a_run_itself_is_found_as_a_dot(tmp_path: Path) -> None:
    assert [one.path for one in scan_run_folders(str(make_run(tmp_path)), {})] == ["."]


def test_what_is_unchanged_is_not_looked_into(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    age_everything(monkeypatch)
    make_run(tmp_path)
    assert [one.is_changed for one in scan_run_folders(str(tmp_path), know(tmp_path))] == [False]


def test_a_file_that_was_written_anew_is_noticed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    age_everything(monkeypatch)
    run = make_run(tmp_path)
    known = know(tmp_path)
    touch_later(run)
    assert [one.is_changed for one in scan_run_folders(str(tmp_path), known)] == [True]


@pytest.mark.parametrize("name", ["README.md", "status.json"])
def test_a_file_that_was_edited_in_place_is_noticed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    age_everything(monkeypatch)
    run = make_run(tmp_path)
    known = know(tmp_path)
    with (run / name).open("a") as page:
        page.write(" ")
    assert [one.is_changed for one in scan_run_folders(str(tmp_path), known)] == [True]


def test_a_folder_that_changed_just_now_is_looked_at_again(tmp_path: Path) -> None:
    make_run(tmp_path)
    known = know(tmp_path)
    assert [one.stamp for one in known.values()] == [RECENT_STAMP]
    assert [one.is_changed for one in scan_run_folders(str(tmp_path), known)] == [True]


def test_links_in_a_circle_and_second_ways_to_a_run_are_left_out(tmp_path: Path) -> None:
    run = make_run(tmp_path)
    (tmp_path / "up").symlink_to(tmp_path)
    (tmp_path / "self").symlink_to(tmp_path / "self")
    (tmp_path / "p" / "z").symlink_to(run)
    assert len(list(scan_run_folders(str(tmp_path), {}))) == 1


def test_a_run_is_settled_when_only_its_folder_can_tell_more() -> None:
    def is_inactive(status: str, host: str = host_name()) -> bool:
        return IndexedRun(1, "", status, host, 0).is_inactive

    assert is_inactive("finished")
    assert is_inactive("damaged")
    assert is_inactive("lost")
    assert not is_inactive("lost", "elsewhere")
    assert not is_inactive("running")
    assert not is_inactive("starting")
