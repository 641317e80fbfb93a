"""Tests of the summary after a successful run."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import epochal as ep
from epochal import durable
from epochal.engine import RunResult
from epochal.engine.execute import result_of_error
from epochal.errors import TaskError
from epochal.experiment.record.success import describe_success, show_success
from epochal.testing import TinyModel, TinyTask

pytestmark = pytest.mark.usefixtures("command_on_path")


def make_record(folder: Path, *, weights: bool = True, **facts: list[str]) -> Path:
    """A record that ``epochal test`` can evaluate, unless ``facts`` say otherwise."""
    (folder / "checkpoints").mkdir(parents=True)
    facts = {"given": [], "splits": ["train", "test"], **facts}
    (folder / "run.json").write_text(json.dumps(facts))
    if weights:
        (folder / "checkpoints" / "final.safetensors").touch()
    return folder


@pytest.fixture(autouse=True)
def in_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def test_success_shows_results_record_and_next_commands() -> None:
    result = RunResult(
        status="finished",
        reason="max_epochs",
        epochs=1,
        steps=12,
        seconds=75.0,
        speed={"steps": 1.5, "samples": 24.04, "tokens": 123_456},
        metrics={"train/epoch/loss": 1.0, "val/probe/hidden/mean": 2.0, "val/acc": 0.5},
        best=0.5,
        config={"monitor": "+val/acc"},
        dir=make_record(Path("runs/p/t/20260101-000000-abcd")),
    )
    assert describe_success(result) == [
        "finished (max_epochs): 1 epoch, 12 steps, 1 min 15 s",
        "  results  train/epoch/loss 1  val/acc 0.5",
        "  best     0.5 (+val/acc)",
        "  speed    1.50 steps/s  24.0 samples/s  123k tokens/s",
        "  record   runs/p/t/20260101-000000-abcd",
        "  next     epochal show 20260101-000000-abcd",
        "           epochal test 20260101-000000-abcd",
    ]


def test_folds_are_shown_with_their_spread() -> None:
    folds = [
        RunResult(status="finished", reason="max_epochs", best=best, metrics={"val/acc": best})
        for best in (0.25, 0.75)
    ]
    make_record(Path("runs/p/t/20260101-000000-abcd/folds/1"))
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
    folder = make_record(Path("my run"))
    result = RunResult(status="finished", reason="max_epochs", steps=1, dir=folder)
    assert describe_success(result)[-2:] == [
        "  next     epochal show 'my run'",
        "           epochal test 'my run'",
    ]


def test_a_test_is_offered_only_if_it_can_work() -> None:
    for number, (is_offered, facts) in enumerate(
        [
            (True, {}),
            (True, {"given": ["hooks"]}),
            (False, {"given": ["model"]}),
            (False, {"splits": ["train", "val"]}),
            (False, {"weights": False}),
        ]
    ):
        folder = make_record(Path(f"runs/{number}"), **facts)
        result = RunResult(status="finished", reason="max_epochs", steps=1, dir=folder)
        offers = [line for line in describe_success(result) if " epochal test " in line]
        assert bool(offers) == is_offered, facts


def test_fit_in_a_script_ends_with_the_lines_of_the_command(
    capsys: pytest.CaptureFixture[str],
) -> None:
    parts = {"task": TinyTask(), "model": TinyModel(), "optim": {"type": "SGD", "lr": 0.1}}
    result = ep.Experiment(**parts, monitor="+val/acc").fit(epochs=1)
    out = capsys.readouterr().out
    assert out.endswith("\n".join(describe_success(result)) + "\n")
    assert "\n  best     " in out
    assert f"  next     epochal show {result.dir.name}\n" in out
    ep.Experiment(**parts, log={"level": "warning"}).fit(epochs=1)
    assert capsys.readouterr().out == ""


def test_only_success_is_printed(
    capsys: pytest.CaptureFixture[str],
) -> None:
    show_success(RunResult(status="finished", reason="completed"))
    assert capsys.readouterr() == ("finished (completed): 0.0 s\n", "")
    show_success(result_of_error(TaskError("a: b")))
    assert capsys.readouterr() == ("", "")


def test_monitor_with_options_is_named() -> None:
    config = {"monitor": {"metric": "val/acc", "mode": "max"}}
    result = RunResult(status="finished", reason="max_epochs", best=0.5, config=config)
    assert "  best     0.5 (val/acc)" in describe_success(result)


def test_checkpoints_that_could_not_be_written_are_counted() -> None:
    for kinds, expected in [
        ("saved", []),
        ("failed failed", ["  unsaved  2 checkpoints could not be written; there is none"]),
        (
            "saved failed",
            ["  unsaved  1 checkpoint could not be written; the newest is of step 10"],
        ),
        (
            "failed saved",
            ["  unsaved  1 checkpoint could not be written; the newest is of step 20"],
        ),
    ]:
        folder = make_record(Path("runs", kinds))
        for number, kind in enumerate(kinds.split(), start=1):
            event = {"kind": f"checkpoint_{kind}", "step": 10 * number}
            durable.append_line(folder / "events.jsonl", event)
        result = RunResult(status="finished", reason="max_epochs", best=0.5, dir=folder)
        shown = [line for line in describe_success(result) if line.startswith("  unsaved")]
        assert shown == expected, kinds
