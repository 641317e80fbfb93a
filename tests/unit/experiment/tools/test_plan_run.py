"""Tests of plans."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from epochal.check import Opaque
from epochal.engine import Parts, Run
from epochal.engine.create_run import create_run
from epochal.errors import ConfigError
from epochal.experiment.tools.plan_run import list_groups, plan_file, printable_default
from epochal.testing import TinyModel, TinyTask
from small_project import tree, write


def test_plan_shows_parts_order_and_defaults_and_writes_nothing(shop: Path) -> None:
    before = tree(shop)
    (planned,) = plan_file(Path("config.yaml"), device="cpu")
    assert (planned.title, planned.runner, planned.device) == ("shop", "Train", "cpu")
    assert "15 parameters" in planned.model
    assert "train 24 samples" in planned.data
    assert planned.limits.steps == 12
    assert any(row.hook == "Recording.step_end" for row in planned.rows)
    assert any(one.key == "model.dropout" for one in planned.defaults)
    assert tree(shop) == before


def test_plan_shows_the_terms_of_a_loss(shop: Path) -> None:
    text = "from shop.parts import Points\nclass Bare(Points): batch_loss = None"
    write(shop / "shop" / "bare.py", text)
    loss = "loss={ce: {type: CrossEntropyLoss}, own: {type: mse, weight: 0.5}}"
    overrides = ["task={type: shop.bare.Bare}", loss]
    (planned,) = plan_file(Path("config.yaml"), overrides=overrides)
    assert planned.loss == "ce + 0.5 own"


def test_each_variant_has_a_plan(shop: Path) -> None:
    plans = list(plan_file(Path("config.yaml"), variant="all"))
    assert [planned.title for planned in plans] == ["shop (variant hot)", "shop (variant long)"]
    (plan,) = plan_file(Path("config.yaml"), variant="base")
    assert plan.title == "shop"
    assert [planned.limits.epochs for planned in plans] == [2, 3]


def test_mistakes_are_raised(shop: Path) -> None:
    with pytest.raises(ConfigError, match=r"optim\.lrr"):
        list(plan_file(Path("config.yaml"), overrides=["optim.lrr=1"]))


def test_plan_as_json_holds_plain_values(shop: Path) -> None:
    import json

    (planned,) = plan_file(Path("config.yaml"))
    values = json.loads(json.dumps(planned.to_json()))
    assert values["title"] == "shop"
    assert values["rows"][0]["event"]


def test_an_unknown_default_is_shown_as_source_text() -> None:
    assert printable_default(Opaque("make()")) == str(Opaque("make()"))
    assert printable_default(3) == 3


def run_with(optimizer: Any, model: nn.Module) -> Run:
    return create_run(Parts(task=TinyTask(), model=model, optimizer=optimizer))


def test_a_single_group_is_not_listed() -> None:
    model = TinyModel()
    assert list_groups(run_with(torch.optim.SGD(model.parameters(), 0.1), model)) == []
    assert list_groups(run_with(None, model)) == []


def test_groups_are_listed_with_sizes_and_differences() -> None:
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


def test_uninitialized_parameters_have_no_size() -> None:
    model = nn.ModuleDict({"a": nn.LazyLinear(2), "b": nn.Linear(1, 1)})
    groups = [{"params": list(part.parameters())} for part in model.values()]
    rows = list_groups(run_with(torch.optim.SGD(groups, lr=0.1), model))
    assert [(row.tensors, row.parameters) for row in rows] == [(2, 0), (2, 2)]
