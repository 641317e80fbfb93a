"""Tests of attributes that task and model change during a run."""

from __future__ import annotations

import random
from collections import deque
from typing import Any

import numpy as np
import torch
from torch import nn

from engine.parts import Sums, adder, make_run
from epochal.checkpoint import deserialize_state, snapshot_to_host
from epochal.engine.state.changed_attributes import MAX_ATTRIBUTE_BYTES, ChangedAttributes


def stored(state: Any) -> Any:
    taken = snapshot_to_host({"attributes": state})
    return deserialize_state(taken.plain, taken.tensors)["attributes"]


class Counting(Sums):
    def __init__(self) -> None:
        super().__init__()
        self.temperature = 1.0
        self.seen = {"a": 0}
        self.recent = deque([1], maxlen=3)
        self.mean = torch.zeros(2)
        self.draws = torch.Generator().manual_seed(1)
        self.dice = random.Random(1)
        self.numbers = np.random.default_rng(1)
        self.legacy = np.random.RandomState(1)
        self.constant = "as built"


def test_changed_attributes_are_restored_and_others_come_from_the_config() -> None:
    task = Counting()
    run = make_run(task, adder())
    attributes = ChangedAttributes(run)
    task.temperature, task.seen["a"], task.late = 0.5, 3, (1, 2)
    task.mean += 1
    run.model[2].p = 0.25
    state = stored(attributes.collect())
    assert "task.constant" not in state
    other = Counting()
    other.constant = "of another config"
    twin = make_run(other, adder())
    mean = other.mean
    ChangedAttributes(twin).restore(state)
    assert (other.temperature, other.seen, other.late) == (0.5, {"a": 3}, (1, 2))
    assert other.mean is mean
    assert other.mean.tolist() == [1, 1]
    assert twin.model[2].p == 0.25
    assert other.constant == "of another config"


def test_values_that_change_in_place_are_restored() -> None:
    task = Counting()
    task.table = np.zeros(3)  # type: ignore[attr-defined]
    run = make_run(task, adder())
    attributes = ChangedAttributes(run)
    task.recent.append(4)
    task.table[1] = 2.5  # type: ignore[attr-defined]
    state = stored(attributes.collect())
    other = Counting()
    other.table = np.zeros(3)  # type: ignore[attr-defined]
    ChangedAttributes(make_run(other, adder())).restore(state)
    assert (list(other.recent), other.recent.maxlen) == ([1, 4], 3)
    assert other.table.tolist() == [0.0, 2.5, 0.0]  # type: ignore[attr-defined]


def test_random_generators_continue() -> None:
    task = Counting()
    attributes = ChangedAttributes(make_run(task))
    torch.rand(3, generator=task.draws), task.dice.random(), task.numbers.random()
    task.legacy.rand()
    state = stored(attributes.collect())
    other = Counting()
    ChangedAttributes(make_run(other)).restore(state)
    assert torch.equal(torch.rand(2, generator=other.draws), torch.rand(2, generator=task.draws))
    assert other.dice.random() == task.dice.random()
    assert other.numbers.random() == task.numbers.random()
    assert other.legacy.rand() == task.legacy.rand()


def test_values_that_cannot_be_saved_or_are_large_are_left_out() -> None:
    task = Counting()
    attributes = ChangedAttributes(make_run(task))
    task.anything = object()
    task.outputs = torch.zeros(MAX_ATTRIBUTE_BYTES)
    assert not {"task.anything", "task.outputs"} & attributes.collect().keys()


def test_a_state_dict_of_the_task_decides_alone() -> None:
    class Own(Counting):
        def state_dict(self) -> dict[str, Any]:
            return {}

    task = Own()
    attributes = ChangedAttributes(make_run(task))
    task.temperature = 0.1
    assert not [name for name in attributes.collect() if name.startswith("task.")]


def test_modules_of_the_task_are_saved() -> None:
    task = Counting()
    task.head = nn.Dropout(0.5)
    attributes = ChangedAttributes(make_run(task))
    task.head.p = 0.1
    assert attributes.collect()["task.head.p"] == {"value": 0.1}


def test_a_run_that_may_roll_back_can_restore_initial_values() -> None:
    task = Counting()
    run = make_run(task, adder(), engine={"on_nonfinite": "rollback"})
    attributes, dice = ChangedAttributes(run), task.dice
    task.temperature, task.seen["a"], task.late = 0.5, 3, (1, 2)
    task.recent.append(4)
    run.model[2].p = 0.25
    attributes.restore_initial()
    assert (task.temperature, task.seen, list(task.recent)) == (1.0, {"a": 0}, [1])
    assert not hasattr(task, "late")
    assert run.model[2].p == 0.0
    assert task.dice is dice
    task.seen["a"] = 5  # the initial value was copied
    attributes.restore_initial()
    assert task.seen == {"a": 0}
