"""Runs on a CUDA device; skipped without one."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import torch

import epochal as ep
from epochal.testing import TinyModel, TinyTask

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]


def train(device: str, **sections: object) -> ep.RunResult:
    torch.manual_seed(0)
    parts = {"task": TinyTask(), "model": TinyModel(dropout=0.0)}
    options = {"optim": {"type": "AdamW", "lr": 0.01}, "train": {"for": "3ep", "eval_loss": True}}
    choices = {"device": device, "no_file": True}
    return ep.Experiment(choices=choices, **(parts | options | sections)).fit()


def test_training_on_cuda_gives_the_losses_of_the_cpu() -> None:
    on_cpu, on_cuda = train("cpu"), train("cuda")
    assert on_cuda.ok, on_cuda.traceback
    assert on_cuda.metrics == pytest.approx(on_cpu.metrics, rel=1e-4)


def test_evaluating_often_does_not_change_dropout_on_cuda() -> None:
    ends = []
    for every in (0, "1st"):
        torch.manual_seed(0)
        model = TinyModel(dropout=0.5)
        ends.append(train("cuda", model=model, train={"for": "3ep", "eval_every": every}))
    rare, often = ends
    assert rare.ok, rare.traceback
    assert often.metrics["train/epoch/loss"] == rare.metrics["train/epoch/loss"]


def test_deterministic_runs_repeat_bit_for_bit_on_cuda() -> None:
    first, second = (train("cuda", engine={"deterministic": True}) for _ in range(2))
    assert first.ok, first.traceback
    assert first.metrics == second.metrics


def test_accumulation_equals_one_large_batch_on_cuda() -> None:
    small = train("cuda", task=TinyTask(batch_size=4), optim={"type": "SGD", "accumulate": 2})
    large = train("cuda", task=TinyTask(batch_size=8), optim={"type": "SGD"})
    assert small.steps == large.steps
    assert small.metrics["val/loss"] == pytest.approx(large.metrics["val/loss"], rel=1e-5)


def test_log_shows_device_memory_and_record_names_the_device(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    result = ep.Experiment(
        task=TinyTask(),
        model=TinyModel(),
        optim={"type": "SGD"},
        train={"for": "1ep"},
        log={"console_every": "1st"},
    ).fit()
    assert result.ok, result.traceback
    assert "memory:" in capsys.readouterr().out
    assert result.dir is not None
    assert torch.cuda.get_device_name() in (result.dir / "run.json").read_text()


def test_run_frees_its_device_memory() -> None:
    assert train("cuda").ok  # libraries keep memory for each stream
    before = torch.cuda.memory_allocated()
    assert train("cuda").ok
    assert torch.cuda.memory_allocated() <= before
