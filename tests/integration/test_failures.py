"""Errors in users' code or data give a clear message and a correct record."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

import epochal as ep
from small_project import Command, run_folders, write

if TYPE_CHECKING:
    from pathlib import Path


def status_of(folder: Path) -> str:
    status: str = json.loads((folder / "status.json").read_text())["status"]
    return status


FED = "task={type: shop.parts.Fed}"
ROWS = "data.{split}={{type: shop.parts.Rows, batch_size: 2{more}}}"


def rows(split: str, more: str = "") -> str:
    return ROWS.format(split=split, more=more)


@pytest.mark.parametrize(
    ("changes", "code", "messages"),
    [
        pytest.param(
            ["task={type: shop.parts.Stumbling}"],
            1,
            ["KeyError", "the shelf is empty", "shop/parts.py:", "while building task"],
            id="task raises in its constructor",
        ),
        pytest.param(
            ["task={type: shop.parts.FloatLoss}"],
            70,
            ["TaskError", "FloatLoss.batch_loss: 'loss' is 1.5, not a tensor", "epoch 1, batch 1"],
            id="loss is not a tensor",
        ),
        pytest.param(
            ["task={type: shop.parts.Empty}"],
            65,
            ["DataError", "train"],
            id="loader is empty",
        ),
        pytest.param(
            [FED, rows("train", ", bad: 3"), rows("val")],
            1,
            ["ValueError", "row 3 is torn", "shop/parts.py:"],
            id="dataset raises",
        ),
        pytest.param(
            [FED, rows("train", ", bad: 3, workers: 1"), rows("val")],
            1,
            ["ValueError", "row 3 is torn", "while reading sample 3", "shop/parts.py:"],
            id="dataset raises in a worker",
        ),
        pytest.param(
            # In the very first batch, so that no earlier one is still pending.
            [FED, rows("train"), rows("val", ", bad: 0, dies: true, workers: 1")],
            65,
            ["WorkerDiedError", "a worker process of the loader died"],
            id="worker dies",
        ),
        pytest.param(
            ["model={type: shop.parts.Crooked}"],
            1,
            ["ValueError", "shapes do not fit", "shop/parts.py:", "sanity evaluation"],
            id="model raises",
        ),
    ],
)
@pytest.mark.usefixtures("dead_workers_are_noticed")
def test_failure_is_framed_and_recorded(
    shop: Path, epochal: Command, changes: list[str], code: int, messages: list[str]
) -> None:
    done = epochal("run", "config.yaml", *changes)
    assert done.code == code, done.err
    assert done.err.startswith("╭─ run failed: ")
    for message in messages:
        assert message in done.err
    assert "Traceback" not in done.err
    (folder,) = run_folders(shop)
    assert status_of(folder) == "failed"
    result = json.loads((folder / "result.json").read_text())
    assert result["exit_code"] == code
    assert "Traceback (most recent call last)" in result["traceback"]
    assert not (folder / "checkpoints" / "final.safetensors").exists()


def test_task_without_a_loss_is_found_before_anything_is_made(shop: Path, epochal: Command) -> None:
    done = epochal("run", "config.yaml", "task={type: shop.parts.NoLoss}")
    assert done.code == 78
    assert "shop.parts.NoLoss has no 'batch_loss'" in done.err
    assert "def batch_loss(self, out, batch)" in done.err
    assert run_folders(shop) == []


def test_module_that_cannot_be_imported_is_reported_as_the_users_mistake(
    shop: Path, epochal: Command
) -> None:
    write(shop / "shop" / "torn.py", "import no_such_package\n\nclass Net: ...\n")
    done = epochal("run", "config.yaml", "model={type: shop.torn.Net}")
    assert done.code == 1
    assert "No module named 'no_such_package'" in done.err
    assert "shop/torn.py:1" in done.err
    assert status_of(run_folders(shop)[0]) == "failed"


def test_module_with_a_syntax_error_is_found_by_the_check(shop: Path, epochal: Command) -> None:
    write(shop / "shop" / "torn.py", "class Net:\n    def f(:\n")
    done = epochal("run", "config.yaml", "model={type: shop.torn.Net}")
    assert done.code == 78
    assert "torn.py" in done.err
    assert run_folders(shop) == []


def test_nan_loss_is_recorded(shop: Path, epochal: Command) -> None:
    done = epochal("run", "config.yaml", "task={type: shop.parts.NanLoss}")
    assert done.code == 79, done.err
    (folder,) = run_folders(shop)
    assert status_of(folder) == "diverged"
    result = json.loads((folder / "result.json").read_text())
    assert result["reason"] == "diverged"
    assert result["metrics"]["train/epoch/loss"] == "$nan"
    assert json.loads(epochal("runs", "--json").out)[0]["metrics"]["train/epoch/loss"] == "$nan"


def test_hook_that_raises_is_named(shop: Path, epochal: Command) -> None:
    write(
        shop / "shop" / "angry.py",
        """
        import epochal as ep
        class Angry(ep.Hook):
            def epoch_end(self, run, split, metrics):
                raise RuntimeError("enough")
        """,
    )
    done = epochal("run", "config.yaml", "hooks=[{type: shop.angry.Angry}]")
    assert done.code == 1
    assert "enough" in done.err
    assert "Angry" in done.err
    assert "shop/angry.py:4" in done.err


def test_failure_in_mid_run_keeps_the_metrics_so_far(shop: Path) -> None:
    class Late(ep.Hook):
        def step_end(self, run: ep.Run) -> None:
            if run.step == 8:
                raise RuntimeError("late")

    result = ep.Experiment("config.yaml", hooks=[Late()]).fit(raise_errors=False)
    assert (result.status, result.steps, result.epochs) == ("failed", 8, 1)
    assert "val/acc" in result.metrics
    assert result.dir is not None
    status = json.loads((result.dir / "status.json").read_text())
    assert (status["step"], status["epoch"]) == (8, 1)


def test_monitor_that_nothing_produces_is_found_early(shop: Path, epochal: Command) -> None:
    done = epochal("run", "config.yaml", "monitor=+val/accuracy")
    assert done.code in (70, 78)
    assert "val/acc" in done.err


def test_full_message_of_a_long_error_is_wrapped_not_cut(shop: Path, epochal: Command) -> None:
    write(
        shop / "shop" / "long.py",
        """
        from shop.parts import Points
        class Long(Points):
            def __init__(self):
                raise ValueError("word " * 60 + "end")
        """,
    )
    done = epochal("run", "config.yaml", "task={type: shop.long.Long}")
    assert done.err.count("word") >= 60
    assert "end" in done.err
