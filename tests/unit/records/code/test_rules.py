"""Tests of epochal.records.code.rules."""

from __future__ import annotations

import subprocess
from typing import TYPE_CHECKING

import pytest

from epochal.records.code.rules import Rules, usual_rules

if TYPE_CHECKING:
    from pathlib import Path


def verdict(lines: list[str], path: str, *, is_folder: bool = False, base: str = "") -> bool | None:
    rules = Rules()
    rules.add(lines, base=base)
    return rules.find(path, is_folder=is_folder)


@pytest.mark.parametrize(
    ("line", "path"),
    [
        ("notes.txt", "notes.txt"),
        ("notes.txt", "a/b/notes.txt"),
        ("/notes.txt", "notes.txt"),
        ("a/notes.txt", "a/notes.txt"),
        ("*.csv", "a/b.csv"),
        ("*.tar.gz", "x.tar.gz"),
        ("data*", "a/data2"),
        ("**/cache", "a/b/cache"),
        ("a/**/c", "a/c"),
        ("a/**/c", "a/b/b/c"),
        ("a/**", "a/b/c"),
        ("file?.py", "file1.py"),
        ("[ab].py", "x/a.py"),
        ("[!ab].py", "c.py"),
        ("\\#odd", "#odd"),
        ("[z-a]", "[z-a]"),
        ("./a", "a"),
    ],
)
def test_line_fits(line: str, path: str) -> None:
    assert verdict([line], path) is True


@pytest.mark.parametrize(
    ("line", "path"),
    [
        ("/notes.txt", "a/notes.txt"),
        ("a/notes.txt", "b/a/notes.txt"),
        ("*.csv", "a.csv/b"),
        ("a/*", "a/b/c"),
        ("file?.py", "file.py"),
        ("[!ab].py", "a.py"),
        ("# notes", "# notes"),
        ("", "a"),
        ("/", "a"),
        ("notes", "notes.txt"),
    ],
)
def test_line_does_not_fit(line: str, path: str) -> None:
    assert verdict([line], path) is None


def test_last_slash_means_folders_only() -> None:
    assert verdict(["out/"], "out", is_folder=True) is True
    assert verdict(["out/"], "out") is None


def test_later_line_outranks_an_earlier_one() -> None:
    lines = ["*.txt", "!keep.txt"]
    assert verdict(lines, "keep.txt") is False
    assert verdict(lines, "other.txt") is True
    assert verdict([*lines, "keep.txt"], "keep.txt") is True


def test_lines_of_an_inner_folder_hold_below_it_only() -> None:
    assert verdict(["x"], "inner/a/x", base="inner/") is True
    assert verdict(["x"], "x", base="inner/") is None
    assert verdict(["/x"], "inner/x", base="inner/") is True
    assert verdict(["/x"], "inner/a/x", base="inner/") is None


def test_patterns_of_several_folders_hold_below_their_own_only() -> None:
    rules = Rules()
    rules.add(["*1"])
    rules.add(["*2"], base="a/")
    rules.add(["*3"], base="a/b/")
    rules.add(["*4"], base="c/")
    found = {name for name in "1234" if rules.find(f"a/b/{name}", is_folder=False)}
    assert found == {"1", "2", "3"}


@pytest.mark.parametrize(
    "path", [".git", ".venv", "__pycache__", "a/__pycache__", "model.pt", "a.pyc", ".hidden", "b~"]
)
def test_what_is_hardly_ever_code_is_left_out(path: str) -> None:
    assert usual_rules().find(path, is_folder=True) is True


@pytest.mark.parametrize(
    "path", ["a.py", "conf/a.yaml", "build.py", "a/build", "words.txt", "runs.py"]
)
def test_code_and_configs_are_not_left_out(path: str) -> None:
    assert usual_rules().find(path, is_folder=False) is None


LINES = [
    "*.csv",
    "!keep.csv",
    "/top",
    "any",
    "deep/inner",
    "fold/",
    "a/**/z",
    "**/q",
    "t?st",
    "[xy]1",
]
PATHS = [
    "a.csv", "keep.csv", "d/keep.csv", "top", "d/top", "any", "d/e/any", "deep/inner",
    "d/deep/inner", "fold", "a/z", "a/b/z", "a/b/c/z", "q", "d/q", "test", "tst", "x1", "d/y1",
]  # fmt: skip


def test_lines_mean_what_git_says(tmp_path: Path) -> None:
    subprocess.run(["git", "init", "-q", str(tmp_path)], check=True)
    (tmp_path / ".gitignore").write_text("\n".join(LINES))
    asked = subprocess.run(
        ["git", "-C", str(tmp_path), "check-ignore", "--stdin"],
        input="\n".join(PATHS),
        capture_output=True,
        text=True,
        check=False,
    )
    ignored = set(asked.stdout.split())
    assert {path for path in PATHS if verdict(LINES, path)} == ignored
    assert ignored
