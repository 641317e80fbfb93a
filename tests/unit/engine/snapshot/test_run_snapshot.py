"""Tests of parts that are put back as they were before a run."""

from __future__ import annotations

import copy
import random
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader

from engine.parts import Sums, adder, fit, make_run, numbers
from epochal.components.optim.schedules import Linear
from epochal.engine.interfaces.hook import Hook
from epochal.engine.snapshot.run_snapshot import RunSnapshot

if TYPE_CHECKING:
    from epochal.engine.run import Run


class Counting(Sums):
    """Changes itself with every batch."""

    def __init__(self) -> None:
        super().__init__(12)
        generator = torch.Generator().manual_seed(1)
        self.train_loader = DataLoader(numbers(12), batch_size=4, shuffle=True, generator=generator)
        self.seen: list[int] = []
        self.noise = random.Random(3)
        self.scale = torch.ones(1)

    def batch_loss(self, out: Any, batch: Any) -> Any:
        self.seen.append(self.noise.randrange(100))
        self.scale += 1
        return super().batch_loss(out, batch)


class Counter(Hook):
    """Has a state of its own."""

    steps = 0

    def step_end(self, run: Run) -> None:
        self.steps += 1

    def state_dict(self) -> dict[str, Any]:
        return {"steps": self.steps}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.steps = state["steps"]


def facts(task: Counting, model: nn.Module, optimizer: Any, hook: Counter) -> dict[str, Any]:
    """All that could differ, as values."""
    return copy.deepcopy(
        {
            "weights": {name: one.tolist() for name, one in model.state_dict().items()},
            "modes": [module.training for module in model.modules()],
            "gradients": [one.grad is None for one in model.parameters()],
            "groups": [
                {name: value for name, value in group.items() if name != "params"}
                for group in optimizer.param_groups
            ],
            "state": [
                {name: torch.as_tensor(one).tolist() for name, one in state.items()}
                for state in optimizer.state.values()
            ],
            "task": (task.seen, task.noise.getstate(), task.scale.tolist()),
            "loader": task.train_loader.generator.get_state().tolist(),
            "hook": hook.steps,
            "random": (random.getstate(), torch.get_rng_state().tolist()),
            "numpy": np.random.get_state()[1].tolist(),
        }
    )


@pytest.mark.parametrize("has_trained", [False, True])
def test_everything_is_as_it_was_before_the_run(has_trained: bool) -> None:
    task, model, hook = Counting(), adder(dropout=0.3), Counter()
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
    parts = {"optimizer": optimizer, "schedule": Linear()}

    def make() -> Run:
        return make_run(task, model, parts=parts, hooks=(hook,), for_="2ep")

    if has_trained:
        fit(make())
    before = facts(task, model, optimizer, hook)
    run = make()
    untouched = RunSnapshot(run)
    fit(run)
    assert facts(task, model, optimizer, hook) != before
    untouched.put_back()
    assert facts(task, model, optimizer, hook) == before


def test_tensors_stay_the_same_objects() -> None:
    model = adder()
    optimizer = torch.optim.SGD(model.parameters(), lr=torch.tensor(0.1), momentum=0.9)
    run = make_run(Sums(8), model, parts={"optimizer": optimizer, "schedule": Linear()})
    rate, weights = optimizer.param_groups[0]["lr"], list(model.parameters())
    untouched = RunSnapshot(run)
    fit(run)
    untouched.put_back()
    assert optimizer.param_groups[0]["lr"] is rate
    assert rate == torch.tensor(0.1)
    assert all(a is b for a, b in zip(model.parameters(), weights, strict=True))


def test_groups_that_came_in_the_run_are_gone() -> None:
    model = adder()
    optimizer = torch.optim.SGD(model[0].parameters(), lr=0.1)
    run = make_run(Sums(8), model, parts={"optimizer": optimizer}, for_="2st")
    added: list[Any] = list(model[3].parameters())

    def add(run: Run) -> None:
        if added:
            optimizer.add_param_group({"params": [added.pop(), added.pop()]})

    run.on("step_end", add)
    untouched = RunSnapshot(run)
    fit(run)
    assert len(optimizer.param_groups) == 2
    untouched.put_back()
    assert len(optimizer.param_groups) == 1
