"""Tests of epochal.records.removable."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING

import pytest

from epochal.errors import RecordError
from epochal.records.prune import remove_checkpoints, remove_run
from epochal.records.removable import find_other_files, why_not_removable
from indexed import record_run

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

ID = "20261115-031200-a3f9"


def write_files(folder: Path, *names: str) -> Path:
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text("{}")
    return folder


def write_record(folder: Path, *more: str) -> Path:
    write_files(folder, "status.json", "checkpoints/final.safetensors", *more)
    (folder / "run.json").write_text(json.dumps({"format": 1, "id": folder.name}))
    return folder


def link(place: Path, target: Path) -> Path:
    place.parent.mkdir(parents=True, exist_ok=True)
    place.symlink_to(target)
    return place


def test_only_what_is_surely_a_run_is_deleted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home, root = tmp_path / "home", tmp_path / "home" / "runs"
    write_record(home / "mine" / ID, "letter.txt")
    work = write_record(root / "work" / ID)
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.chdir(work)
    facts = '{"status": "finished", "format": 1, "id": "x"}'
    table: dict[str, tuple[Path, str]] = {
        "link to the home": (link(root / "p" / ID, home), "through a link"),
        "link to a run": (link(root / "q" / ID, home / "mine" / ID), "through a link"),
        "behind a link": (link(root / "r", home / "mine") / ID, "through a link"),
        "path that leaves": (root / ".." / "mine" / ID, "not inside the folder of the runs"),
        "beside the runs": (home / "mine" / ID, "not inside the folder of the runs"),
        "the runs folder": (write_record(root), "not inside the folder of the runs"),
        "home": (home, "not inside the folder of the runs"),
        "current folder": (work, "holds the current folder"),
        "project with a status": (
            write_files(root / "a", "status.json", "main.py", "pyproject.toml"),
            "not certainly a run",
        ),
        "only a status": (write_files(root / "b", "status.json"), "not certainly a run"),
        "like a run": (
            write_files(root / "c", "status.json", "run.json", "logs/x", "config/y"),
            "not certainly a run",
        ),
        "project with a record in it": (
            write_record(root / "d", "pyproject.toml", "src/a.py"),
            "holds a project",
        ),
        "chosen folder with other files": (
            write_record(root / "e", "a.txt", "b.txt", "c.txt", "d.txt"),
            "files that Epochal did not write: a.txt, b.txt, c.txt and more",
        ),
        "git checkout": (write_record(root / "f" / ID, ".git/config"), "holds a git checkout: ."),
        "nested git checkout": (
            write_record(root / "g" / ID, "notes/repo/.git/config"),
            "holds a git checkout: notes/repo",
        ),
        "git worktree": (write_record(root / "h" / ID, "x/.git"), "holds a git checkout: x"),
        "project in a run": (write_record(root / "i" / ID, "setup.py"), "holds a project"),
        "other files, no record": (
            write_files(root / "j" / ID, "thesis.tex"),
            "not certainly a run",
        ),
        "damaged record": (
            write_files(root / "k" / ID, "run.json", "x.tex"),
            "not certainly a run",
        ),
        "no folder": (root / "l" / ID, "cannot be read"),
        "linked record": (write_files(root / "m" / ID, "x.tex"), "not certainly a run"),
    }
    (tmp_path / "facts.json").write_text(facts)
    link(root / "m" / ID / "run.json", tmp_path / "facts.json")
    before = sorted(tmp_path.rglob("*"))
    for name, (folder, reason) in table.items():
        assert reason in why_not_removable(folder, root), name
        with pytest.raises(RecordError, match=r"stays, because it .*\n  delete it by hand"):
            remove_run(folder, root)
    assert sorted(tmp_path.rglob("*")) == before


def test_whole_runs_are_deleted_with_what_the_user_added(tmp_path: Path) -> None:
    root = tmp_path / "runs"
    folders = [
        record_run(root),
        write_record(root / "p" / "t" / ID, "notes.txt", "figures/a.png"),
        write_files(root / "killed" / ID, "status.json"),
        write_record(root / "chosen"),
    ]
    (root / "empty" / ID).mkdir(parents=True)
    folders.append(root / "empty" / ID)
    others = [find_other_files(folder) for folder in folders]
    assert others == [[], ["figures", "notes.txt"], [], [], []]
    for folder in folders:
        assert why_not_removable(folder, root) == "", folder
        remove_run(folder, root)
        assert not folder.exists()


def test_runs_folder_may_itself_be_a_link(tmp_path: Path) -> None:
    folder = record_run(tmp_path / "scratch")
    root = link(tmp_path / "runs", tmp_path / "scratch")
    remove_run(root / folder.relative_to(tmp_path / "scratch"), root)
    assert not folder.exists()


def test_runs_of_another_user_stay(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = record_run(tmp_path)
    monkeypatch.setattr(os, "geteuid", lambda: folder.lstat().st_uid + 1)
    assert why_not_removable(folder, tmp_path) == "belongs to another user"
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    assert why_not_removable(folder, tmp_path) == ""


def test_checkpoints_are_deleted_only_from_records(tmp_path: Path) -> None:
    def no_record(folder: Path) -> None:
        (folder / "run.json").unlink()
        (folder / "main.py").touch()

    def linked(folder: Path) -> None:
        (folder / "checkpoints").rename(tmp_path / "elsewhere")
        (folder / "checkpoints").symlink_to(tmp_path / "elsewhere")

    table: dict[Callable[[Path], None], str] = {
        no_record: "not certainly a run",
        linked: "has its checkpoints elsewhere, behind a link",
    }
    root = tmp_path / "runs"
    for number, (change, reason) in enumerate(table.items()):
        folder = write_record(root / str(number))
        change(folder)
        with pytest.raises(RecordError, match=reason):
            remove_checkpoints(folder, root)
        assert (folder / "checkpoints" / "final.safetensors").exists()
    folder = write_record(root / "mixed", "main.py", ".git/config")
    remove_checkpoints(folder, root)
    assert find_other_files(folder) == [".git", "main.py"]
