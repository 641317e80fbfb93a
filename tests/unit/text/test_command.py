"""Tests of what a person is told to type next."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from epochal.text.command import command_line_words, epochal_command, name_run


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A project with the command in a virtual environment that no shell knows."""
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


def test_command_on_the_path_is_named_shortly(
    installed: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(installed), prepend=os.pathsep)
    for word in (str(installed / "epochal"), "train.py", "/lib/epochal/__main__.py"):
        assert typed(monkeypatch, word) == "epochal"


def test_command_is_named_as_it_was_typed(installed: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert typed(monkeypatch, ".venv/bin/epochal") == ".venv/bin/epochal"
    assert typed(monkeypatch, str(installed / "epochal")) == ".venv/bin/epochal"
    monkeypatch.chdir(installed)
    assert typed(monkeypatch, "./epochal") == "./epochal"
    (installed / "elsewhere").mkdir()
    monkeypatch.chdir("elsewhere")
    assert typed(monkeypatch, str(installed / "epochal")) == str(installed / "epochal")


def test_another_command_of_that_name_is_not_meant(
    installed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = tmp_path / "other"
    other.mkdir()
    (other / "epochal").write_text("#!/bin/sh\n")
    (other / "epochal").chmod(0o755)
    monkeypatch.setenv("PATH", str(other))
    assert typed(monkeypatch, ".venv/bin/epochal") == ".venv/bin/epochal"


def test_module_is_named_as_a_module(installed: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    word = "/lib/epochal/__main__.py"
    assert typed(monkeypatch, word) == ".venv/bin/python -m epochal"


def test_script_is_told_of_the_command_beside_its_python(
    installed: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert typed(monkeypatch, "train.py") == ".venv/bin/epochal"
    (installed / "epochal").unlink()
    assert typed(monkeypatch, "train.py") == ".venv/bin/python -m epochal"


@pytest.mark.parametrize(
    ("program", "expected"),
    [
        ("/bin/epochal", ["epochal", "run", "a b"]),
        ("/lib/epochal/__main__.py", ["epochal", "run", "a b"]),
        ("/work/digits/__main__.py", ["python", "-m", "digits", "run", "a b"]),
        ("scripts/train.py", ["train.py", "run", "a b"]),
    ],
)
def test_what_was_typed_names_no_file_that_nobody_types(
    program: str, expected: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "argv", [program, "run", "a b"])
    assert command_line_words() == expected


def test_process_without_words_was_not_typed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", [])
    assert command_line_words() == []


def test_run_is_named_by_its_id_where_that_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert name_run(Path("runs/p/t/123")) == "123"
    assert name_run(tmp_path / "runs" / "123") == "123"
    assert name_run(Path("mine")) == "mine"
    assert name_run(Path("my runs/123")) == "'my runs/123'"
