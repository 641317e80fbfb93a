"""Tests of snapshots: what is restored, and how two of them compare."""

from __future__ import annotations

import copy
import math
import random
from collections import Counter, OrderedDict, defaultdict, deque
from dataclasses import dataclass
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader

from engine.parts import Sums, adder, fit, make_run, numbers
from epochal.components.schedules import Linear
from epochal.engine.interfaces.hook import Hook
from epochal.engine.snapshot.snapshot import Snapshot, take_whole_snapshot

if TYPE_CHECKING:
    from epochal.engine.run.engine_run import EngineRun


def snapshot(**tensors: Tensor) -> Snapshot:
    return Snapshot(make_run(), tensors, has_objects=False)


class Weighted(Sums):
    """A task with attributes of many kinds."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = 0.5
        self.names = ["a", "b"]
        self.table: dict[str, Any] = {"x": (1, 2)}
        self.head = nn.Dropout(0.1)


def test_attributes_are_restored_and_containers_in_place() -> None:
    task = Weighted()
    run = make_run(task, adder(dropout=0.2))
    run.store.set("count", 1)
    taken, names = Snapshot(run), task.names
    task.weight = 9.0
    task.names.append("c")
    task.table["y"] = 1
    task.new = 1  # type: ignore[attr-defined]
    run.model[2].p = 0.9
    task.head.p = 0.8
    run.store.force_set("count", 2)
    run.store.set("new", Tensor())
    taken.restore()
    assert task.weight == 0.5
    assert task.names is names
    assert names == ["a", "b"]
    assert task.table == {"x": (1, 2)}
    assert not hasattr(task, "new")
    assert run.model[2].p == 0.2
    assert task.head.p == 0.1
    assert run.store.get("count") == 1
    assert "new" not in run.store


@dataclass(frozen=True)
class Fixed:
    seen: list[int]


@dataclass(slots=True)
class Slotted:
    count: int = 0


def add_one(value: Any, name: str) -> None:
    setattr(value, name, getattr(value, name) + 1)


HELD: list[tuple[Any, Any, Any]] = [
    (Counter("ab"), lambda v: v.update("ac"), dict),
    (defaultdict(int, a=1), lambda v: v["b"], dict),
    (OrderedDict(a=1, b=2), lambda v: v.move_to_end("a"), list),
    (deque([1, 2], maxlen=2), lambda v: v.append(3), list),
    ({1, 2}, lambda v: v.add(3), set),
    ({"losses": [1]}, lambda v: v["losses"].append(2), lambda v: list(v["losses"])),
    ([[1]], lambda v: v[0].append(2), lambda v: list(v[0])),
    (SimpleNamespace(n=0), lambda v: add_one(v, "n"), lambda v: v.n),
    (Slotted(), lambda v: add_one(v, "count"), lambda v: v.count),
    (Fixed([1]), lambda v: v.seen.append(2), lambda v: list(v.seen)),
    (np.zeros(2), lambda v: v.fill(1), np.ndarray.tolist),
    (random.Random(0), lambda v: v.random(), lambda v: v.getstate()),
    (np.random.default_rng(0), lambda v: v.random(), lambda v: str(v.bit_generator.state)),
    (np.random.RandomState(0), lambda v: v.rand(), lambda v: str(v.get_state())),
    (torch.Generator(), lambda v: torch.rand(1, generator=v), lambda v: v.get_state().tolist()),
    ([nn.Dropout(0.1)], lambda v: v[0].eval(), lambda v: v[0].training),
]


def test_values_of_every_kind_that_a_task_holds_are_restored() -> None:
    for value, change, look in HELD:
        task = Sums()
        task.thing = value  # type: ignore[attr-defined]
        taken, before = Snapshot(make_run(task)), look(value)
        change(value)
        assert look(value) != before, value
        taken.restore()
        assert look(value) == before, value
        assert task.thing is value  # type: ignore[attr-defined]


class ModuleTask(nn.Module):
    """A task may be a module."""

    def __init__(self) -> None:
        super().__init__()
        self.train_loader = Sums().train_loader
        self.head = nn.Linear(1, 1)
        self.calls = 0

    batch_forward = Sums.batch_forward
    batch_loss = Sums.batch_loss


def test_a_task_that_is_a_module_gets_its_parts_back() -> None:
    task = ModuleTask()
    taken, weight = Snapshot(make_run(task)), task.head.weight
    task.calls += 1
    task.head.weight = nn.Parameter(torch.ones(1, 1))
    task.eval()
    taken.restore()
    assert task.calls == 0
    assert task.head.weight is weight
    assert task.head.training


def test_tensors_and_global_generators_are_restored() -> None:
    model = adder()
    taken = Snapshot(make_run(Sums(), model))
    before = [parameter.detach().clone() for parameter in model.parameters()]
    drawn = random.random(), np.random.rand(), torch.rand(1).item()
    fit(make_run(Sums(), model, for_="1ep"))
    taken.restore()
    assert all(torch.equal(a, b) for a, b in zip(before, model.parameters(), strict=True))
    assert (random.random(), np.random.rand(), torch.rand(1).item()) == drawn


def test_the_first_tensor_whose_bits_differ_is_named() -> None:
    values = torch.tensor([math.nan, math.inf, 1.0])
    assert snapshot(x=values).first_difference(snapshot(x=values.clone())) == ""
    for dtype in (torch.float64, torch.bfloat16, torch.int64, torch.bool, torch.complex64):
        here = snapshot(x=torch.zeros(3), y=torch.zeros((), dtype=dtype))
        there = snapshot(x=torch.zeros(3), y=torch.ones((), dtype=dtype))
        assert here.first_difference(here) == "", dtype
        assert here.first_difference(there) == "y", dtype


def test_a_gap_is_relative_to_the_way_since_the_start() -> None:
    start = snapshot(**{"model.w": torch.zeros(4), "optim.m": torch.zeros(4)})
    first = snapshot(**{"model.w": torch.full((4,), 2.0), "optim.m": torch.zeros(4)})
    second = snapshot(**{"model.w": torch.full((4,), 2.5), "optim.m": torch.ones(4)})
    assert first.gap(second, start, "model.") == pytest.approx(0.25)
    assert first.gap(first, start, "model.") == 0.0
    assert start.gap(second, start, "model.") == math.inf
    assert first.gap(second, start, "optim.") == math.inf


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


class CountingHook(Hook):
    """Has a state."""

    steps = 0

    def step_end(self, run: EngineRun) -> None:
        self.steps += 1

    def state_dict(self) -> dict[str, Any]:
        return {"steps": self.steps}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.steps = state["steps"]


def facts(task: Counting, model: nn.Module, optimizer: Any, hook: CountingHook) -> dict[str, Any]:
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
def test_a_whole_snapshot_restores_everything_after_the_run(has_trained: bool) -> None:
    task, model, hook = Counting(), adder(dropout=0.3), CountingHook()
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
    parts = {"optimizer": optimizer, "schedule": Linear()}

    def make() -> EngineRun:
        return make_run(task, model, parts=parts, hooks=(hook,), for_="2ep")

    if has_trained:
        fit(make())
    before = facts(task, model, optimizer, hook)
    run = make()
    taken = take_whole_snapshot(run)
    fit(run)
    assert facts(task, model, optimizer, hook) != before
    taken.restore()
    assert facts(task, model, optimizer, hook) == before


def test_a_whole_snapshot_restores_tensors_in_place_and_removes_new_groups() -> None:
    model = adder()
    optimizer = torch.optim.SGD(model[0].parameters(), lr=torch.tensor(0.1), momentum=0.9)
    parts = {"optimizer": optimizer, "schedule": Linear()}
    run = make_run(Sums(8), model, parts=parts, for_="2st")
    rate, weights = optimizer.param_groups[0]["lr"], list(model.parameters())
    added: list[Any] = list(model[3].parameters())

    def add(run: EngineRun) -> None:
        if added:
            optimizer.add_param_group({"params": [added.pop(), added.pop()]})

    run.on("step_end", add)
    taken = take_whole_snapshot(run)
    fit(run)
    assert len(optimizer.param_groups) == 2
    taken.restore()
    assert len(optimizer.param_groups) == 1
    assert optimizer.param_groups[0]["lr"] is rate
    assert rate == torch.tensor(0.1)
    assert all(a is b for a, b in zip(model.parameters(), weights, strict=True))
