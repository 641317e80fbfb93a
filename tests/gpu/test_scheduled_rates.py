"""Schedules, warm-ups and find-lr on a real device, eager and captured."""

from __future__ import annotations

import logging
from typing import Any

import pytest
import torch
from torch import Tensor

import epochal as ep
from epochal.testing import TinyModel, TinyTask

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]

SCHEDULES: dict[str, dict[str, Any]] = {
    "cosine": {"type": "cosine", "restarts": 2, "peak_decay": 0.5, "warmup": "5st"},
    "one_cycle": {"type": "one_cycle"},
    "wsd": {"type": "wsd", "warmup": "1ep", "decay": 0.3},
    "multi_step": {"type": "multi_step", "milestones": [8, "2ep"], "warmup": 4},
    "noam": {"type": "noam", "model_size": 4, "warmup": "1ep"},
    "by epochs": {"type": "exponential", "gamma": 0.5, "every": "1ep", "unit": "epoch"},
    "torch": {"type": "CosineAnnealingLR", "T_max": 20, "warmup": "5st"},
    "torch by epochs": {"type": "StepLR", "step_size": 1, "unit": "epoch", "warmup": "1ep"},
    "plateau": {"type": "plateau", "patience": 0, "threshold": 0.5, "warmup": "1ep"},
}


class Keep(ep.Hook):
    """Keeps facts that are known only during the run."""

    def __init__(self) -> None:
        self.rates: list[float] = []
        self.choices: dict[str, object] = {}
        self.tensors: list[Tensor] = []

    def run_start(self, run: ep.Run) -> None:
        self.tensors = [group["lr"] for group in run.optimizer.param_groups]

    def step_end(self, run: ep.Run) -> None:
        self.rates += run.learning_rates.values()

    def run_end(self, run: ep.Run) -> None:
        self.choices = dict(run.choices)
        now = [group["lr"] for group in run.optimizer.param_groups]
        assert all(a is b for a, b in zip(now, self.tensors, strict=True))


def experiment(step: str, schedule: dict[str, Any], keep: Keep) -> ep.Experiment:
    torch.manual_seed(0)
    return ep.Experiment(
        task=TinyTask(num_samples=64),
        model=TinyModel(),
        optim={"type": "AdamW", "lr": 0.05, "groups": [{"match": "*.bias", "lr_mult": 0.5}]},
        schedule=schedule,
        monitor="-train/loss",
        train={"for": "4ep", "eval_every": 0},
        engine={"step": step, "deterministic": True},
        log={"console_every": 0},
        hooks=[keep],
        choices={"device": "cuda", "no_file": True, "raise_errors": True},
    )


@pytest.mark.parametrize("name", SCHEDULES)
def test_captured_steps_take_the_same_rates_and_bits_without_a_new_capture(
    name: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    found = {}
    for step in ("eager", "graph"):
        keep = Keep()
        one = experiment(step, SCHEDULES[name], keep)
        one.fit()
        model = one.inputs.given.parts["model"]
        found[step] = (keep, [value.clone() for value in model.state_dict().values()])
    assert found["graph"][0].choices["step"] == "graph"
    assert found["eager"][0].rates == found["graph"][0].rates
    assert len(set(found["eager"][0].rates)) > 2
    assert all(map(torch.equal, found["eager"][1], found["graph"][1]))
    assert "captured again" not in caplog.text


@pytest.mark.parametrize("step", ["eager", "graph"])
def test_training_after_find_lr_gives_the_same_bits(step: str) -> None:
    def train(*, is_searched: bool) -> list[Tensor]:
        one = experiment(step, SCHEDULES["cosine"], Keep())
        if is_searched:
            found = ep.find_lr(one, max_lr=10, steps=40)
            assert len(found.losses) > 10
        one.fit()
        return [value.clone() for value in one.inputs.given.parts["model"].state_dict().values()]

    assert all(map(torch.equal, train(is_searched=False), train(is_searched=True)))
