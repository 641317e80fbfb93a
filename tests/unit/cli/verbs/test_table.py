"""Tests of ``epochal table``."""

from __future__ import annotations

import json
import shutil
from typing import TYPE_CHECKING

import pytest

from comparing import make_run

if TYPE_CHECKING:
    from pathlib import Path

    from small_project import Command

ONE, TWO = "20261114-100000-aaaa", "20261114-110000-bbbb"


@pytest.fixture
def made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Two runs with an accuracy and a loss."""
    monkeypatch.chdir(tmp_path)
    for number, name in enumerate((ONE, TWO)):
        tag = ("base", "wide")[number]
        points = {"val/acc": {1: 0.5 + number / 4, 2: 0.25}, "train/loss": {1: 0.125}}
        make_run(
            tmp_path / "runs" / "shop" / tag / name,
            points=points,
            best=0.5 + number / 4,
            format=1,
            id=name,
            tag=tag,
        )
    return tmp_path / "runs"


def lines(text: str) -> list[list[str]]:
    return [line.split() for line in text.splitlines()]


def test_a_table_of_runs_is_made_shown_and_exported(made: Path, epochal: Command) -> None:
    assert "no tables; make one: `epochal table new" in epochal("table").out
    epochal("table", "new", "results", "method", "val/acc", "note")
    done = epochal("table", "add", "results", "base", TWO)
    assert lines(done.out) == [
        ["A", "method", "B", "val/acc", "C", "note"],
        ["1", "base", "0.5"],
        ["2", "wide", "0.75"],
    ]
    epochal("table", "set", "results", "A3", "50% & more", "-0.5", "x|y")
    epochal("table", "link", "results", "C1", "base", "val/acc", "train/loss", "--last")
    epochal("table", "set", "results", "D", "loss")
    assert lines(epochal("table", "show", "results").out)[1:] == [
        ["1", "base", "0.5", "0.25", "0.125"],
        ["2", "wide", "0.75"],
        ["3", "50%", "&", "more", "-0.5", "x|y"],
    ]
    assert "| 50% \\& more | -0.5 | x\\|y |  |\n" in epochal("table", "export", "results").out
    assert epochal("table", "export", "results", "-o", "t.tex").out == "wrote t.tex\n"
    assert "  wide & 0.75 &  &  \\\\\n" in (made.parent / "t.tex").read_text()
    assert epochal("table", "export", "results", "--format", "csv").out == (
        "method,val/acc,note,loss\nbase,0.5,0.25,0.125\nwide,0.75,,\n50% & more,-0.5,x|y,\n"
    )
    told = json.loads(epochal("table", "list", "--json").out)
    assert (told[0]["name"], told[0]["rows"], told[0]["columns"]) == ("results", 3, 4)
    assert lines(epochal("table").out)[1][:3] == ["results", "3", "4"]
    cell = json.loads(epochal("table", "show", "results", "--json").out)["rows"][0][1]
    link = {"run": ONE, "metric": "val/acc", "which": "best"}
    assert cell == link | {"value": 0.5, "problem": ""}


def test_parts_of_a_table_and_the_table_are_removed(made: Path, epochal: Command) -> None:
    epochal("table", "new", "results", "a", "b")
    epochal("table", "set", "results", "A1", "x", "y")
    assert lines(epochal("table", "remove", "results", "B1").out)[1] == ["1", "x"]
    assert lines(epochal("table", "remove", "results", "A").out) == [["A", "b"], ["1"]]
    assert lines(epochal("table", "remove", "results", "1").out) == [["A", "b"]]
    asked = epochal("table", "remove", "results")
    assert asked.out == "results has 0 rows; add --yes to remove it\n"
    assert epochal("table", "remove", "results", "--yes").out == "removed results\n"
    assert "no such table" in epochal("table", "show", "results").err


def test_missing_run_of_a_cell_is_named(made: Path, epochal: Command) -> None:
    epochal("table", "new", "results", "method", "val/acc")
    epochal("table", "add", "results", "base")
    shutil.rmtree(made / "shop" / "base")
    for words in (("show", "results"), ("export", "results")):
        done = epochal("table", *words)
        assert "?" in done.out, words
        assert done.err == f"B1: run {ONE} is gone\n", words


def test_runs_in_a_table_are_not_pruned(made: Path, epochal: Command) -> None:
    epochal("table", "new", "results", "method", "val/acc")
    epochal("table", "add", "results", "base")
    done = epochal("runs", "prune", "--status", "finished", "--yes")
    assert "has results in the table 'results'" in done.out
    assert [one.name for one in made.glob("shop/*/*")] == [ONE]


def test_mistakes_are_explained(made: Path, epochal: Command) -> None:
    epochal("table", "new", "results", "method")
    for words, message in (
        (("new", "results"), "a table of this name exists"),
        (("new", "a/b"), "cannot be the name of a table"),
        (("show", "result"), "did you mean 'results'"),
        (("set", "results", "1A", "x"), "1A: is not a cell"),
        (("set", "results", "C1", "x"), "the next column is B"),
        (("set", "results", "A1", "\x1b[31m"), "A1: has control characters"),
        (("link", "results", "A", "base", "val/acc"), "A: is a heading"),
        (("link", "results", "A1", "base", "val/ac"), "did you mean 'val/acc'"),
        (("link", "results", "A1", "nothing", "val/acc"), "nothing: no such run"),
        (("add", "results", "nothing"), "nothing: no such run"),
        (("export", "results", "-o", "t.pdf"), "t.pdf has no known suffix"),
    ):
        done = epochal("table", *words)
        assert done.code != 0, words
        assert message in done.err, (words, done.err)
    epochal("table", "new", "empty")
    assert "empty" in epochal("table", "list").out
    assert "has no columns\n  name some" in epochal("table", "add", "empty", "base").err
