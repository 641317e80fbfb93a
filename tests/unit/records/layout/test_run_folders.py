"""Tests of epochal.records.layout.run_folders."""

from __future__ import annotations

from typing import TYPE_CHECKING

from epochal.records.layout.run_folders import (
    find_run_folders,
    is_run_folder,
    looks_like_run_folder,
    parse_start_time,
)

if TYPE_CHECKING:
    from pathlib import Path


def make(path: Path, name: str = "run.json") -> Path:
    path.mkdir(parents=True)
    (path / name).write_text("{}")
    return path


def test_a_run_folder_is_recognised_by_files_or_name(tmp_path: Path) -> None:
    assert is_run_folder(make(tmp_path / "a"))
    assert is_run_folder(make(tmp_path / "b", "status.json"))
    assert looks_like_run_folder("20260101-000000-abcd", set())
    assert not is_run_folder(make(tmp_path / "c", "other.json"))
    assert not is_run_folder(tmp_path / "none")


def test_runs_are_found_up_to_a_depth_and_not_inside_of_runs(tmp_path: Path) -> None:
    first = make(tmp_path / "p" / "a")
    make(first / "folds" / "1")
    make(tmp_path / ".hidden" / "b")
    deepest = make(tmp_path / "1/2/3/4/5/6")
    make(tmp_path / "1/2/3/4/5/x/7")
    assert find_run_folders(tmp_path) == [deepest, first]
    assert find_run_folders(first) == [first]


def test_the_start_time_is_read_from_the_id() -> None:
    for name, time in [("20260102-030405-abcd", "2026-01-02T03:04"), ("alpha", "")]:
        assert parse_start_time(name) == time
