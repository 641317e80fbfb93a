"""Tests of the summary after a successful run."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from epochal.cli.pages.result import describe_success, print_result
from epochal.engine import RunResult
from epochal.engine.execute import result_of_error
from epochal.errors import TaskError

if TYPE_CHECKING:
    import pytest


def test_success_shows_results_record_and_next_commands() -> None:
    result = RunResult(
        status="finished",
        reason="max_epochs",
        epochs=1,
        steps=12,
        seconds=75.0,
        metrics={"train/epoch/loss": 1.0, "val/acc": 0.5},
        best=0.5,
        config={"monitor": "+val/acc"},
        dir=Path("runs/p/t/20260101-000000-abcd"),
    )
    assert describe_success(result) == [
        "finished (max_epochs): 1 epoch, 12 steps, 1 min 15 s",
        "  results  train/epoch/loss 1  val/acc 0.5",
        "  best     0.5 (+val/acc)",
        "  record   runs/p/t/20260101-000000-abcd",
        "  next     epochal show 20260101-000000-abcd",
        "           epochal test 20260101-000000-abcd",
    ]


def test_folds_are_shown_with_their_spread() -> None:
    folds = [
        RunResult(status="finished", reason="max_epochs", best=best, metrics={"val/acc": best})
        for best in (0.25, 0.75)
    ]
    result = RunResult(
        status="finished",
        reason="completed",
        epochs=2,
        steps=24,
        metrics={"val/acc": 0.5},
        spread={"val/acc": 0.3536, "best": 0.3536},
        best=0.5,
        dir=Path("runs/p/t/20260101-000000-abcd"),
        value=folds,
    )
    assert describe_success(result) == [
        "finished (completed): 2 folds, 2 epochs, 24 steps, 0.0 s",
        "  results  val/acc 0.5 ± 0.3536",
        "  best     0.5 ± 0.3536",
        "  folds    0.25  0.75",
        "  record   runs/p/t/20260101-000000-abcd",
        "  next     epochal show 20260101-000000-abcd",
        "           epochal test runs/p/t/20260101-000000-abcd/folds/1",
    ]


def test_evaluation_has_no_steps_and_suggests_no_test() -> None:
    result = RunResult(status="finished", reason="completed", dir=Path("runs/a"))
    assert describe_success(result) == [
        "finished (completed): 0.0 s",
        "  record   runs/a",
        "  next     epochal show a",
    ]


def test_run_outside_the_usual_folder_is_named_by_its_path() -> None:
    result = RunResult(status="finished", reason="max_epochs", steps=1, dir=Path("my run"))
    assert describe_success(result)[-2:] == [
        "  next     epochal show 'my run'",
        "           epochal test 'my run'",
    ]


def test_only_success_is_printed(
    capsys: pytest.CaptureFixture[str],
) -> None:
    print_result(RunResult(status="finished", reason="completed"))
    assert capsys.readouterr() == ("finished (completed): 0.0 s\n", "")
    print_result(result_of_error(TaskError("a: b")))
    assert capsys.readouterr() == ("", "")


def test_monitor_with_options_is_named() -> None:
    config = {"monitor": {"metric": "val/acc", "mode": "max"}}
    result = RunResult(status="finished", reason="max_epochs", best=0.5, config=config)
    assert "  best     0.5 (val/acc)" in describe_success(result)
