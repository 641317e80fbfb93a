"""Tests of what Python code can change, kept aside and put back."""

from __future__ import annotations

import random
from collections import Counter, OrderedDict, defaultdict, deque
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from engine.parts import Sums, adder, make_run
from epochal.engine.snapshot.object_snapshot import ObjectSnapshot


class Weighted(Sums):
    """A task with plain attributes of many kinds."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = 0.5
        self.names = ["a", "b"]
        self.table: dict[str, Any] = {"x": (1, 2)}
        self.head = nn.Dropout(0.1)


def test_plain_attributes_are_put_back_containers_in_place() -> None:
    task = Weighted()
    run = make_run(task, adder(dropout=0.2))
    kept, names = ObjectSnapshot(run), task.names
    task.weight = 9.0
    task.names.append("c")
    task.table["y"] = 1
    task.new = 1  # type: ignore[attr-defined]
    run.model[2].p = 0.9
    task.head.p = 0.8
    kept.restore()
    assert task.weight == 0.5
    assert task.names is names
    assert names == ["a", "b"]
    assert task.table == {"x": (1, 2)}
    assert not hasattr(task, "new")
    assert run.model[2].p == 0.2
    assert task.head.p == 0.1


@dataclass(frozen=True)
class Fixed:
    seen: list[int]


@dataclass(slots=True)
class Tight:
    count: int = 0


def add_one(value: Any, name: str) -> None:
    setattr(value, name, getattr(value, name) + 1)


@pytest.mark.parametrize(
    ("value", "change", "look"),
    [
        (Counter("ab"), lambda v: v.update("ac"), dict),
        (defaultdict(int, a=1), lambda v: v["b"], dict),
        (OrderedDict(a=1, b=2), lambda v: v.move_to_end("a"), list),
        (deque([1, 2], maxlen=2), lambda v: v.append(3), list),
        ({1, 2}, lambda v: v.add(3), set),
        ({"losses": [1]}, lambda v: v["losses"].append(2), lambda v: list(v["losses"])),
        ([[1]], lambda v: v[0].append(2), lambda v: list(v[0])),
        (SimpleNamespace(n=0), lambda v: add_one(v, "n"), lambda v: v.n),
        (Tight(), lambda v: add_one(v, "count"), lambda v: v.count),
        (Fixed([1]), lambda v: v.seen.append(2), lambda v: list(v.seen)),
        (np.zeros(2), lambda v: v.fill(1), np.ndarray.tolist),
        (random.Random(0), lambda v: v.random(), lambda v: v.getstate()),
        (np.random.default_rng(0), lambda v: v.random(), lambda v: str(v.bit_generator.state)),
        (np.random.RandomState(0), lambda v: v.rand(), lambda v: str(v.get_state())),
        (torch.Generator(), lambda v: torch.rand(1, generator=v), lambda v: v.get_state().tolist()),
        ([nn.Dropout(0.1)], lambda v: v[0].eval(), lambda v: v[0].training),
    ],
)
def test_whatever_a_task_holds_is_put_back(value: Any, change: Any, look: Any) -> None:
    task = Sums()
    task.thing = value  # type: ignore[attr-defined]
    kept, before = ObjectSnapshot(make_run(task)), look(value)
    change(value)
    assert look(value) != before
    kept.restore()
    assert look(value) == before
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
    kept, weight = ObjectSnapshot(make_run(task)), task.head.weight
    task.calls += 1
    task.head.weight = nn.Parameter(torch.ones(1, 1))
    task.eval()
    kept.restore()
    assert task.calls == 0
    assert task.head.weight is weight
    assert task.head.training


def test_names_of_the_store_are_put_back() -> None:
    run = make_run()
    run.store.set("count", 1)
    kept = ObjectSnapshot(run)
    run.store.force_set("count", 2)
    run.store.set("new", Tensor())
    kept.restore()
    assert run.store.get("count") == 1
    assert "new" not in run.store
