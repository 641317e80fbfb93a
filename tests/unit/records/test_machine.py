"""Tests of epochal.records.machine."""

from __future__ import annotations

import json
import platform
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import pytest

from epochal import durable
from epochal.records import machine
from epochal.records.machine import describe_machine


def git(folder: Path, *arguments: str) -> None:
    identity = ["-c", "user.name=a", "-c", "user.email=a@b.c", "-c", "commit.gpgsign=false"]
    subprocess.run(["git", "-C", str(folder), *identity, *arguments], check=True)


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    git(tmp_path, "init", "-q")
    (tmp_path / "code.py").write_text("x = 1\n")
    git(tmp_path, "add", "code.py")
    git(tmp_path, "commit", "-q", "-m", "first")
    return tmp_path


def test_machine_is_described_in_json(tmp_path: Path) -> None:
    facts = json.loads(durable.encode_json(describe_machine(tmp_path)))
    assert facts["python"] == platform.python_version()
    assert facts["cores"] >= facts["usable_cores"] >= 1
    assert facts["memory_bytes"] > 2**20
    for key in ("hostname", "platform", "cpu", "executable"):
        assert isinstance(facts[key], str)
        assert facts[key]


def test_versions_of_packages_are_known_without_importing_them() -> None:
    code = (
        "import sys; from epochal.records.machine import describe_machine as d\n"
        "print(d()['packages']['torch']); sys.exit('torch' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert done.stdout.strip() == version("torch")


def test_clean_repository_is_described(repository: Path) -> None:
    state = describe_machine(repository)["git"]
    assert isinstance(state, dict)
    assert len(state["commit"]) == 40
    assert state["dirty"] is False


def test_changed_repository_is_dirty(repository: Path) -> None:
    (repository / "code.py").write_text("x = 2\n")
    assert describe_machine(repository)["git"]["dirty"] is True  # type: ignore[index]  # a dict


def test_monitor_program_of_a_repository_is_not_run(repository: Path) -> None:
    trap = repository / "trap.sh"
    trap.write_text(f"#!/bin/sh\ntouch {repository / 'sprung'}\n")
    trap.chmod(0o755)
    git(repository, "config", "core.fsmonitor", str(trap))
    describe_machine(repository)
    assert not (repository / "sprung").exists()


def test_folder_outside_of_git_has_no_commit(tmp_path: Path) -> None:
    assert describe_machine(tmp_path)["git"] is None


def test_missing_git_is_no_trouble(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert describe_machine(tmp_path)["git"] is None


def test_git_that_does_not_answer_is_given_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    slow = tmp_path / "git"
    slow.write_text(f"#!{sys.executable}\nimport signal\nsignal.pause()\n")
    slow.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(machine, "_GIT_SECONDS", 0.05)
    assert describe_machine(tmp_path)["git"] is None


def test_systems_without_proc_or_sysconf_are_described(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise FileNotFoundError("not here")

    monkeypatch.setattr("os.sysconf", refuse)
    monkeypatch.setattr(Path, "read_text", refuse)
    monkeypatch.delattr("os.sched_getaffinity", raising=False)
    facts = describe_machine(tmp_path)
    assert facts["memory_bytes"] is None
    assert facts["usable_cores"] == facts["cores"]
    assert facts["cpu"]
