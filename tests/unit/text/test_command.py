"""Tests of the commands that messages tell users to type."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

import pytest

from epochal.text.command import command_line_words, epochal_command

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A project with the command in a virtual environment that is not on the PATH."""
    programs = tmp_path / ".venv" / "bin"
    programs.mkdir(parents=True)
    for name in ("epochal", "python"):
        (programs / name).write_text("#!/bin/sh\n")
        (programs / name).chmod(0o755)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "executable", str(programs / "python"))
    monkeypatch.setenv("PATH", "/nowhere")
    return programs


def typed(monkeypatch: pytest.MonkeyPatch, word: str) -> str:
    monkeypatch.setattr(sys, "argv", [word])
    return epochal_command()


def test_a_command_on_the_path_is_called_by_its_name(
    installed: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(installed), prepend=os.pathsep)
    for word in (str(installed / "epochal"), "train.py", "/lib/epochal/__main__.py"):
        assert typed(monkeypatch, word) == "epochal"


def test_any_other_command_is_called_as_it_was_typed(
    installed: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert typed(monkeypatch, ".venv/bin/epochal") == ".venv/bin/epochal"
    assert typed(monkeypatch, str(installed / "epochal")) == ".venv/bin/epochal"
    monkeypatch.chdir(installed)
    assert typed(monkeypatch, "./epochal") == "./epochal"
    (installed / "elsewhere").mkdir()
    monkeypatch.chdir("elsewhere")
    assert typed(monkeypatch, str(installed / "epochal")) == str(installed / "epochal")


def test_another_program_of_that_name_on_the_path_is_not_used(
    installed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = tmp_path / "other"
    other.mkdir()
    (other / "epochal").write_text("#!/bin/sh\n")
    (other / "epochal").chmod(0o755)
    monkeypatch.setenv("PATH", str(other))
    assert typed(monkeypatch, ".venv/bin/epochal") == ".venv/bin/epochal"


def test_modules_and_scripts_use_the_python_that_runs_them(
    installed: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert typed(monkeypatch, "/lib/epochal/__main__.py") == ".venv/bin/python -m epochal"
    assert typed(monkeypatch, "train.py") == ".venv/bin/epochal"
    (installed / "epochal").unlink()
    assert typed(monkeypatch, "train.py") == ".venv/bin/python -m epochal"


def test_the_command_line_is_given_as_it_was_typed(monkeypatch: pytest.MonkeyPatch) -> None:
    for argv, expected in (
        (["/bin/epochal", "run", "a b"], ["epochal", "run", "a b"]),
        (["/lib/epochal/__main__.py", "run"], ["epochal", "run"]),
        (["/work/digits/__main__.py", "run"], ["python", "-m", "digits", "run"]),
        (["scripts/train.py"], ["train.py"]),
        ([], []),
    ):
        monkeypatch.setattr(sys, "argv", argv)
        assert command_line_words() == expected, argv
