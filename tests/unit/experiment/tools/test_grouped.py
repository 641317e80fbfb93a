"""Tests of the table of groups."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from epochal.engine import Parts, Run
from epochal.experiment.tools.plan_run import list_groups
from epochal.testing import TinyModel, TinyTask


def run_with(optimizer: Any, model: nn.Module) -> Run:
    return Run(Parts(task=TinyTask(), model=model, optimizer=optimizer))


def test_nothing_is_listed_where_all_is_trained_alike() -> None:
    model = TinyModel()
    assert list_groups(run_with(torch.optim.SGD(model.parameters(), 0.1), model)) == []
    assert list_groups(run_with(None, model)) == []


def test_groups_are_listed_with_their_sizes_and_what_differs() -> None:
    model = TinyModel()
    groups = [
        {"params": [model.linear.weight], "lr": torch.tensor(0.5), "momentum": 0.9},
        {"params": [model.linear.bias], "weight_decay": 0.1, "name": "bias", "rule": "match *"},
    ]
    first, second = list_groups(run_with(torch.optim.SGD(groups, lr=0.1), model))
    assert (first.name, first.rule, first.lr, first.weight_decay) == ("0", "", 0.5, 0)
    assert (first.tensors, first.parameters, first.options) == (1, 12, {"momentum": 0.9})
    assert (second.name, second.rule, second.lr) == ("bias", "match *", 0.1)
    assert (second.weight_decay, second.options) == (0.1, {"momentum": 0})


def test_frozen_parameters_come_last() -> None:
    model = TinyModel()
    model.linear.weight.requires_grad = False
    rows = list_groups(run_with(torch.optim.SGD([model.linear.bias], 0.1), model))
    assert [row.name for row in rows] == ["0", "frozen"]
    assert (rows[1].rule, rows[1].parameters, rows[1].lr) == ("linear.weight", 12, None)


def test_the_rate_is_that_before_any_schedule() -> None:
    model = TinyModel()
    groups = [{"params": [one], "initial_lr": 0.3} for one in model.parameters()]
    rows = list_groups(run_with(torch.optim.SGD(groups, lr=0.1), model))
    assert [row.lr for row in rows] == [0.3, 0.3]


def test_sizes_that_are_not_known_yet_count_nothing() -> None:
    model = nn.ModuleDict({"a": nn.LazyLinear(2), "b": nn.Linear(1, 1)})
    groups = [{"params": list(part.parameters())} for part in model.values()]
    rows = list_groups(run_with(torch.optim.SGD(groups, lr=0.1), model))
    assert [(row.tensors, row.parameters) for row in rows] == [(2, 0), (2, 2)]
