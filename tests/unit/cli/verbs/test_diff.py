"""Tests of epochal.cli.verbs.diff."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from comparing import make_run

if TYPE_CHECKING:
    from pathlib import Path

    from small_project import Command


@pytest.fixture
def runs(tmp_path: Path) -> Path:
    for place, lr in enumerate((0.1, 0.2, 0.1)):
        points = {"train/loss": {1: 1.0, 2: lr}}
        make_run(tmp_path / f"run{place}", {"optim.lr": lr}, points=points)
    return tmp_path


def test_two_runs_are_compared(runs: Path, epochal: Command) -> None:
    done = epochal("diff", "run0", "run1", "--runs-dir", runs)
    assert done.code == 0
    assert "they differ in 1 parameter and 1 metric; their curves diverge by step 2" in done.out
    assert "\x1b" not in done.out


def test_three_runs_are_compared_in_a_table(runs: Path, epochal: Command) -> None:
    done = epochal("diff", "--runs-dir", runs, "--only", "params", "run0", "run1", "run2")
    assert "  optim.lr   0.1  0.2  0.1" in done.out


def test_equal_runs_are_reported_as_equal(runs: Path, epochal: Command) -> None:
    done = epochal("diff", "run0", "run2", "--runs-dir", runs)
    assert "\nnothing differs\n" in done.out


def test_comparison_is_printed_as_json(runs: Path, epochal: Command) -> None:
    done = epochal("diff", "run0", "run1", "--runs-dir", runs, "--json", "--only", "params,curves")
    found = json.loads(done.out)
    assert found["differing"] == ["params", "curves"]
    assert found["params"]["differences"][0]["sides"][1]["value"] == 0.2
    assert "metrics" not in found


def test_tolerance_can_be_chosen(runs: Path, epochal: Command) -> None:
    words = ("diff", "run0", "run1", "--runs-dir", runs, "--only", "curves", "--tolerance")
    assert "by more than 1 % at the same step" in epochal(*words, "0.01").out
    assert "never by more than 60 %" in epochal(*words, "0.6").out


def test_unknown_section_suggests_the_closest_one(runs: Path, epochal: Command) -> None:
    done = epochal("diff", "run0", "run1", "--runs-dir", runs, "--only", "parms,code,x")
    assert done.code == 78
    assert "--only: unknown section 'parms'" in done.err
    assert "did you mean 'params'?" in done.err
    assert "--only: unknown section 'x'\n  known: code, curves, data" in done.err


def test_empty_section_is_refused(runs: Path, epochal: Command) -> None:
    assert "unknown section ','" in epochal("diff", "a", "b", "--only", ",").err


def test_one_run_is_not_enough(runs: Path, epochal: Command) -> None:
    done = epochal("diff", "run0", "--runs-dir", runs)
    assert done.code != 0
    assert "needs two runs or more" in done.err


def test_run_that_does_not_exist_is_named(runs: Path, epochal: Command) -> None:
    assert "nowhere: no such run" in epochal("diff", "run0", "nowhere", "--runs-dir", runs).err
