"""Tests of what a captured step would freeze."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from engine.parts import Sums, adder, make_run
from epochal.engine.frozen import (
    PlainState,
    find_change,
    name_moved_generator,
    noting_attributes,
    noting_positions,
    random_states,
    take_fingerprint,
)


class Weighted(Sums):
    """A task with plain attributes of many kinds."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = 0.5
        self.names = ["a", "b"]
        self.table: dict[str, Any] = {"x": (1, 2)}
        self.function = len
        self.seen: list[torch.Tensor] = []
        self.head = nn.Dropout(0.1)


def changed(change: Any) -> str:
    task = Weighted()
    run = make_run(task, adder(dropout=0.2))
    before = take_fingerprint(run)
    change(task, run)
    return find_change(before, take_fingerprint(run))


@pytest.mark.parametrize(
    ("change", "where"),
    [
        (lambda task, run: setattr(task, "weight", 0.6), "Weighted.weight"),
        (lambda task, run: task.names.append("c"), "Weighted.names"),
        (lambda task, run: task.table.update(x=(1, 3)), "Weighted.table"),
        (lambda task, run: setattr(task, "function", max), "Weighted.function"),
        (lambda task, run: task.seen.append(torch.ones(1)), "Weighted.seen"),
        (lambda task, run: setattr(task, "new", 1), "Weighted.new"),
        (lambda task, run: setattr(task.head, "p", 0.3), "Weighted.head.p"),
        (lambda task, run: setattr(run.model[2], "p", 0.3), "model.2.p"),
        (lambda task, run: run.model[2].eval(), "model.2.training"),
        (lambda task, run: run.model[0].weight.requires_grad_(False), "model.0.weight.requires"),
        (lambda task, run: run.model[1].register_forward_hook(print), "model.1._forward_hooks"),
        (
            lambda task, run: run.optimizer.param_groups[0].update(weight_decay=1.0),
            "optim.0.weight_decay",
        ),
        (
            lambda task, run: run.optimizer.add_param_group({"params": [nn.Parameter()]}),
            "optim.1.params",
        ),
    ],
)
def test_a_change_of_a_plain_value_is_found_and_named(change: Any, where: str) -> None:
    assert changed(change).startswith(where)


@pytest.mark.parametrize(
    "change",
    [
        lambda task, run: None,
        lambda task, run: run.model[0].weight.data.add_(1),
        lambda task, run: setattr(task, "train_loader", [1]),
    ],
)
def test_tensors_and_loaders_may_change(change: Any) -> None:
    assert changed(change) == ""


def test_a_rate_that_is_a_tensor_may_move_and_a_number_may_not() -> None:
    model = adder()
    optimizer = torch.optim.AdamW(model.parameters(), lr=torch.tensor(0.1))
    run = make_run(Sums(), model, parts={"optimizer": optimizer})
    before = take_fingerprint(run)
    optimizer.param_groups[0]["lr"].fill_(0.2)
    assert find_change(before, take_fingerprint(run)) == ""
    optimizer.param_groups[0]["lr"] = 0.3
    assert find_change(before, take_fingerprint(run)) == "optim.0.lr"


def test_only_the_attributes_that_matter_are_compared() -> None:
    task = Weighted()
    run = make_run(task)
    before = take_fingerprint(run, {"names"})
    task.weight = 9.0
    assert find_change(before, take_fingerprint(run, {"names"})) == ""
    task.names.append("c")
    assert find_change(before, take_fingerprint(run, {"names"})) == "Weighted.names"


def test_attributes_that_are_read_in_a_block_are_noted() -> None:
    task = Weighted()
    kind = type(task)
    with noting_attributes(task) as names:
        assert task.weight == 0.5
        assert isinstance(task, Weighted)
    assert names is not None
    assert "weight" in names
    assert "names" not in names
    assert type(task) is kind


def test_an_object_that_cannot_be_watched_counts_as_a_whole() -> None:
    with noting_attributes(object()) as names:
        pass
    assert names is None


@pytest.mark.parametrize(
    ("draw", "library"),
    [
        (random.random, "Python's random"),
        (np.random.rand, "numpy.random"),
        (lambda: torch.rand(1), "torch on the CPU"),
        (lambda: np.random.default_rng(0).random(), ""),
    ],
)
def test_the_library_whose_generator_moved_is_named(draw: Any, library: str) -> None:
    before = random_states()
    draw()
    assert name_moved_generator(before, random_states()) == library


def test_lines_that_read_the_position_of_the_run_are_noted() -> None:
    run = make_run()
    kind = type(run)
    with noting_positions(run) as reads:
        assert run.step == 0
        assert run.samples == 0
        run.batch_index = 3
    assert [read.split(" is read in ")[0] for read in reads] == ["run.step", "run.samples"]
    assert "test_frozen.py:" in reads[0]
    assert type(run) is kind
    assert run.batch_index == 3


def test_what_epochal_itself_reads_is_not_noted() -> None:
    run = make_run()
    with noting_positions(run) as reads:
        assert run.limits is not None
        run.log({"x": 1.0})
    assert reads == []


def test_plain_attributes_are_put_back_containers_in_place() -> None:
    task = Weighted()
    run = make_run(task, adder(dropout=0.2))
    kept, names = PlainState(run), task.names
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
