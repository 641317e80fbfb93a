"""Tests of finding and comparing the objects that task and model hold."""

from __future__ import annotations

import random
from argparse import Namespace
from collections import Counter, OrderedDict, deque
from dataclasses import dataclass
from threading import Lock
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
from torch import nn

from engine.parts import Sums, make_run
from epochal.engine.snapshot.run_objects import (
    ValueFingerprinter,
    walk_run_objects,
)


@dataclass
class Settings:
    alpha: float = 1.0


@dataclass(slots=True)
class Tight:
    alpha: float = 1.0


class Scale(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.eps = 1.0


class Shared:
    """Shared with other threads."""

    def __init__(self) -> None:
        self.lock = Lock()
        self.count = 0


def freeze(value: object, device: str = "cuda") -> object:
    return ValueFingerprinter(torch.device(device)).fingerprint(value)


def add_alpha(one: Any) -> None:
    one.alpha += 1


def test_a_change_inside_is_seen() -> None:
    for value, change in [
        (SimpleNamespace(alpha=1.0), add_alpha),
        (Namespace(alpha=1.0), add_alpha),
        (Settings(), add_alpha),
        (Tight(), add_alpha),
        ({"deep": [Settings()]}, lambda one: add_alpha(one["deep"][0])),
        (SimpleNamespace(inner=Settings()), lambda one: add_alpha(one.inner)),
        ([Scale()], lambda one: setattr(one[0], "eps", 0.5)),
        ([Scale()], lambda one: one[0].eval()),
        (np.ones(3), lambda one: one.fill(2)),
        (torch.tensor(1.0), lambda one: one.fill_(2)),
        (torch.tensor(1.0, dtype=torch.bfloat16), lambda one: one.fill_(2)),
        (random.Random(0), lambda one: one.random()),
        (np.random.default_rng(0), lambda one: one.random()),
        (np.random.RandomState(0), lambda one: one.rand()),
        (torch.Generator(), lambda one: torch.rand(1, generator=one)),
        (Counter("a"), lambda one: one.update("a")),
        (deque([1]), lambda one: one.append(1)),
        (OrderedDict(a=1), lambda one: one.update(a=2)),
    ]:
        before = freeze(value)
        assert freeze(value) == before
        hash(before)
        change(value)
        assert freeze(value) != before


def test_tensors_large_things_and_what_threads_share_may_change() -> None:
    for value, change in [
        (torch.ones(3), lambda one: one.fill_(2)),
        (Shared(), lambda one: setattr(one, "count", 1)),
        ([0] * 2000, lambda one: one.__setitem__(5, 1)),
        (np.zeros(100_000), lambda one: one.fill(1)),
    ]:
        before = freeze(value)
        change(value)
        assert freeze(value) == before


def test_a_number_on_the_device_of_the_steps_is_no_constant() -> None:
    number = torch.tensor(1.0)
    before = freeze(number, "cpu")
    number.fill_(2)
    assert freeze(number, "cpu") == before


def test_objects_with_cycles_are_compared() -> None:
    one = SimpleNamespace(alpha=1.0)
    one.again = [one]
    assert freeze(one) == freeze(one)


def test_the_walk_comes_to_everything_once_and_leaves_loaders_alone() -> None:
    task = Sums()
    task.settings = SimpleNamespace(bank=torch.zeros(2))  # type: ignore[attr-defined]
    task.again = task.settings  # type: ignore[attr-defined]
    run = make_run(task)
    run.store.set("queue", [torch.ones(1)])
    paths = [path for path, _ in walk_run_objects(run)]
    assert "task.settings.bank" in paths
    assert "task.again" not in paths
    assert "store['_globals']['queue'][0]" in paths
    assert not any(path.startswith("task.train_loader") for path in paths)
    assert "model._modules['0']._parameters['weight']" in paths
