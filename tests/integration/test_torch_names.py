"""Every optimizer and scheduler of torch works by its name in a config."""

from __future__ import annotations

import inspect

import pytest
import torch

import epochal as ep
from epochal.testing import TinyModel, TinyTask

NEEDS_OTHER_PARAMETERS = {"Muon", "SparseAdam"}  # matrices only; sparse gradients only
OPTIMIZERS = sorted(
    name
    for name, item in vars(torch.optim).items()
    if inspect.isclass(item) and issubclass(item, torch.optim.Optimizer) and name != "Optimizer"
)
SCHEDULERS = {
    "StepLR": {"step_size": 2},
    "MultiStepLR": {"milestones": [1, 3]},
    "ConstantLR": {},
    "LinearLR": {},
    "ExponentialLR": {"gamma": 0.9},
    "PolynomialLR": {},
    "CosineAnnealingLR": {"T_max": 5},
    "CosineAnnealingWarmRestarts": {"T_0": 3},
    "CyclicLR": {"base_lr": 0.1, "max_lr": 1.0, "cycle_momentum": False},
    "OneCycleLR": {"max_lr": 0.1, "total_steps": 100},
    "ReduceLROnPlateau": {},
    "SequentialLR": {
        "schedulers": [{"type": "LinearLR"}, {"type": "CosineAnnealingLR", "T_max": 3}],
        "milestones": [3],
    },
    "ChainedScheduler": {"schedulers": [{"type": "LinearLR"}, {"type": "ConstantLR"}]},
}


def train(**sections: object) -> ep.RunResult:
    return ep.Experiment(
        task=TinyTask(),
        model=TinyModel(),
        train={"for": "1ep"},
        monitor="-train/loss",
        log={"console_every": 0},
        choices={"device": "cpu", "no_file": True},
        **sections,
    ).fit(raise_errors=False)


@pytest.mark.parametrize("name", [n for n in OPTIMIZERS if n not in NEEDS_OTHER_PARAMETERS])
def test_every_optimizer_of_torch_takes_steps(name: str) -> None:
    result = train(optim={"type": name, "lr": 0.01})
    assert (result.status, result.steps) == ("finished", 6), result.traceback


def test_optimizer_that_refuses_the_parameters_is_an_error_message() -> None:
    result = train(optim={"type": "SparseAdam"})
    assert result.status == "failed"
    assert "SparseAdam does not support dense gradients" in result.message


@pytest.mark.parametrize("name", sorted(SCHEDULERS))
def test_every_scheduler_of_torch_moves_the_learning_rate(name: str) -> None:
    rates: list[float] = []

    def watch(run: ep.Run) -> None:
        run.on("step_end", lambda run: rates.extend(run.learning_rates.values()))

    result = train(
        optim={"type": "SGD", "lr": 0.1},
        schedule={"type": name, **SCHEDULERS[name]},
        hooks=[watch],
    )
    assert result.status == "finished", result.traceback
    # One epoch is too short for ReduceLROnPlateau.
    assert len(set(rates)) > 1 or name == "ReduceLROnPlateau", rates
