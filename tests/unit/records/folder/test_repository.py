"""Tests of epochal.records.folder.machine."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest

from epochal.records.folder import machine
from epochal.records.folder.machine import describe_repository, read_git_diff

if TYPE_CHECKING:
    from pathlib import Path


def git(folder: Path, *arguments: str) -> None:
    identity = ["-c", "user.name=a", "-c", "user.email=a@b.c", "-c", "commit.gpgsign=false"]
    subprocess.run(["git", "-C", str(folder), *identity, *arguments], check=True)


@pytest.fixture
def place(tmp_path: Path) -> Path:
    tmp_path = tmp_path / "place"
    tmp_path.mkdir()
    git(tmp_path, "init", "-q", "-b", "main")
    (tmp_path / "code.py").write_text("x = 1\n")
    git(tmp_path, "add", "code.py")
    git(tmp_path, "commit", "-q", "-m", "first")
    return tmp_path


def described(folder: Path) -> dict[str, Any]:
    state = describe_repository(folder)
    assert state is not None
    return state


def test_a_repository_is_clean_or_dirty(place: Path) -> None:
    (place / "inner").mkdir()
    for is_dirty in (False, True):
        state = described(place / "inner")
        assert (len(state["commit"]), state["branch"], state["dirty"]) == (40, "main", is_dirty)
        (place / "code.py").write_text("x = 2\n")


def test_programs_that_a_repository_configures_are_not_run(place: Path) -> None:
    trap = place / "trap.sh"
    trap.write_text(f"#!/bin/sh\ntouch {place / 'sprung'}\n")
    trap.chmod(0o755)
    for key in ("core.fsmonitor", "diff.external", "diff.x.textconv"):
        git(place, "config", key, str(trap))
    (place / ".gitattributes").write_text("*.py diff=x\n")
    (place / "code.py").write_text("x = 2\n")
    described(place)
    assert "+x = 2" in read_git_diff(place)
    assert not (place / "sprung").exists()


def test_folder_outside_of_git_has_no_commit(tmp_path: Path) -> None:
    assert describe_repository(tmp_path) is None


def test_without_git_there_is_no_state(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(place.parent))
    assert describe_repository(place) is None
    assert read_git_diff(place) == ""


def test_git_has_a_timeout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / ".git").mkdir()
    slow = tmp_path / "git"
    slow.write_text(f"#!{sys.executable}\nimport signal\nsignal.pause()\n")
    slow.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(machine, "_GIT_SECONDS", 0.05)
    assert describe_repository(tmp_path) is None


def test_branch_and_remote_are_described(place: Path) -> None:
    git(place, "remote", "add", "other", "https://example.org/other.git")
    assert described(place)["remote"] == "https://example.org/other.git"
    git(place, "remote", "add", "origin", "https://me:hunter2hunter2@example.org/a.git")
    state = described(place)
    assert state["branch"] == "main"
    assert "hunter2" not in state["remote"]
    assert state["remote"].endswith("example.org/a.git")


def test_detached_head_has_no_branch(place: Path) -> None:
    git(place, "checkout", "-q", "--detach")
    assert described(place)["branch"] == ""
    assert len(described(place)["commit"]) == 40


def test_a_repository_without_commits_is_described(tmp_path: Path) -> None:
    git(tmp_path, "init", "-q", "-b", "main")
    state = described(tmp_path)
    assert (state["commit"], state["branch"]) == ("", "main")
    assert read_git_diff(tmp_path) == ""


def test_a_diff_has_the_changes_without_secret_files(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (place / ".env").write_text("A=1\n")
    git(place, "add", "-f", ".env")
    (place / ".env").write_text("PASSWORD=hunter2hunter2\n")
    (place / "code.py").write_text("x = 2\n")
    text = read_git_diff(place)
    assert text.startswith("diff --git a/.env b/.env (left out: it may hold secrets)\n")
    assert "-x = 1\n+x = 2\n" in text
    assert "hunter2" not in text
    git(place, "reset", "-q", ".env")
    monkeypatch.setattr(machine, "_MAX_DIFF_BYTES", 40)
    assert read_git_diff(place).endswith("(cut off here)\n")


def test_a_repository_that_is_too_large_has_a_commit(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = machine._git

    def ask(directory: Path, *arguments: str) -> str | None:
        return None if arguments[0] == "status" else real(directory, *arguments)

    monkeypatch.setattr(machine, "_git", ask)
    state = described(place)
    assert len(state["commit"]) == 40
    assert state["dirty"] is None
