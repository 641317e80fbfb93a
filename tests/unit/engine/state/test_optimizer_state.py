"""Tests of the state of optimizers by name."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

from engine.parts import Sums, adder, make_run
from epochal.checkpoint import deserialize_state, snapshot_to_host
from epochal.engine.state.optimizer_state import (
    collect_optimizer,
    name_all_parameters,
    restore_in_place,
    restore_optimizer,
)
from epochal.errors import CheckpointError
from resume import digest


def stored(state: Any) -> Any:
    taken = snapshot_to_host({"optim": state})
    return deserialize_state(taken.plain, taken.tensors)["optim"]


def take_steps(model: nn.Module, optimizer: torch.optim.Optimizer, steps: int = 3) -> None:
    data = torch.randn(4, 3, generator=torch.Generator().manual_seed(0))
    for _ in range(steps):

        def loss() -> torch.Tensor:
            optimizer.zero_grad()
            value = model(data).square().mean()
            value.backward()
            return value

        optimizer.step(loss)


KINDS: list[tuple[Any, dict[str, Any]]] = [
    (torch.optim.SGD, {}),
    (torch.optim.SGD, {"momentum": 0.9}),
    (torch.optim.AdamW, {"amsgrad": True}),
    (torch.optim.AdamW, {"fused": True}),
    (torch.optim.Adam, {"lr": torch.tensor(0.01), "foreach": False, "capturable": False}),
    (torch.optim.LBFGS, {"max_iter": 3, "line_search_fn": "strong_wolfe"}),
    (torch.optim.RMSprop, {"momentum": 0.5, "centered": True}),
    (torch.optim.Adagrad, {}),
    (torch.optim.Rprop, {}),
    (torch.optim.NAdam, {}),
    (torch.optim.Adafactor, {}),
]


@pytest.mark.parametrize(("kind", "options"), KINDS)
def test_every_optimizer_continues_with_the_same_bits(kind: Any, options: dict[str, Any]) -> None:
    def build() -> tuple[nn.Module, Any, dict[str, Any]]:
        model = adder()
        given = {"lr": 0.01} | options
        given["lr"] = torch.as_tensor(given["lr"]).clone() if "lr" in options else 0.01
        optimizer = kind(model.parameters(), **given)
        return model, optimizer, dict(model.named_parameters())

    model, optimizer, names = build()
    take_steps(model, optimizer)
    state, weights = stored(collect_optimizer(optimizer, names)), model.state_dict()
    twin, other, twin_names = build()
    twin.load_state_dict(weights)
    restore_optimizer(other, twin_names, state)
    assert digest(collect_optimizer(other, twin_names)) == digest(state)
    take_steps(model, optimizer)
    take_steps(twin, other)
    assert digest(dict(twin.state_dict())) == digest(dict(model.state_dict()))
    assert digest(collect_optimizer(other, twin_names)) == digest(
        collect_optimizer(optimizer, names)
    )


def test_existing_tensors_are_restored_in_place() -> None:
    model = adder()
    optimizer = torch.optim.AdamW(model.parameters(), lr=torch.tensor(0.01))
    names = dict(model.named_parameters())
    take_steps(model, optimizer)
    state = stored(collect_optimizer(optimizer, names))
    moment = optimizer.state[model[0].weight]["exp_avg"]
    rate = optimizer.param_groups[0]["lr"]
    take_steps(model, optimizer)
    rate.fill_(0.5)
    restore_optimizer(optimizer, names, state)
    assert optimizer.state[model[0].weight]["exp_avg"] is moment
    assert optimizer.param_groups[0]["lr"] is rate
    assert rate == torch.tensor(0.01)


def test_state_that_was_created_later_is_removed() -> None:
    model = adder()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    names = dict(model.named_parameters())
    state = stored(collect_optimizer(optimizer, names))
    take_steps(model, optimizer)
    restore_optimizer(optimizer, names, state)
    assert not optimizer.state


def test_groups_that_were_added_during_the_run_are_added_again() -> None:
    def build() -> Any:
        model = adder()
        return torch.optim.SGD(model[0].parameters(), lr=0.1), dict(model.named_parameters()), model

    optimizer, names, model = build()
    optimizer.add_param_group({"params": list(model[3].parameters()), "lr": 0.5})
    other, other_names, _ = build()
    restore_optimizer(other, other_names, stored(collect_optimizer(optimizer, names)))
    assert [group["lr"] for group in other.param_groups] == [0.1, 0.5]


def test_groups_of_other_parameters_are_refused_with_their_names() -> None:
    model = adder()
    state = collect_optimizer(
        torch.optim.SGD(model.parameters(), lr=0.1), dict(model.named_parameters())
    )
    other = nn.Sequential(nn.Linear(3, 8))
    optimizer = torch.optim.SGD(other.parameters(), lr=0.1)
    with pytest.raises(
        CheckpointError, match=r"here 2 parameters, there 4 .*\n.*only in.*: 3\.bias"
    ):
        restore_optimizer(optimizer, dict(other.named_parameters()), state)


def test_groups_in_another_order_or_number_are_refused() -> None:
    def build(order: tuple[int, ...]) -> tuple[Any, dict[str, Any]]:
        model = adder()
        parameters = list(model.parameters())
        parts = [parameters[:2], parameters[2:]] if len(order) > 1 else [parameters]
        groups = [{"params": parts[index], "lr": 0.1 * (index + 1)} for index in order]
        return torch.optim.SGD(groups), dict(model.named_parameters())

    state = stored(collect_optimizer(*build((0, 1))))
    for order in ((1, 0), (0,)):
        with pytest.raises(CheckpointError, match="the same parameters are grouped in another way"):
            restore_optimizer(*build(order), state)


def test_implementation_options_of_the_new_optimizer_stay() -> None:
    model = adder()
    names = dict(model.named_parameters())
    state = collect_optimizer(torch.optim.Adam(model.parameters(), lr=0.5, foreach=True), names)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.1, foreach=False)
    restore_optimizer(optimizer, names, stored(state))
    assert optimizer.param_groups[0]["lr"] == 0.5
    assert optimizer.param_groups[0]["foreach"] is False


def test_an_optimizer_with_its_own_state_dict_saves_itself() -> None:
    class Counting(torch.optim.SGD):
        count = 0

        def state_dict(self) -> dict[str, Any]:
            return {"count": self.count}

        def load_state_dict(self, state_dict: dict[str, Any]) -> None:
            self.count = state_dict["count"]

    model = adder()
    optimizer, other = (Counting(model.parameters(), lr=0.1) for _ in range(2))
    optimizer.count = 7
    restore_optimizer(other, {}, stored(collect_optimizer(optimizer, {})))
    assert other.count == 7


def test_every_parameter_has_exactly_one_name() -> None:
    task, model = Sums(), adder()
    task.scale = nn.Linear(1, 1)
    stray = nn.Parameter(torch.ones(1))
    optimizer = torch.optim.SGD([*model.parameters(), *task.scale.parameters(), stray], lr=0.1)
    names = list(name_all_parameters(make_run(task, model, parts={"optimizer": optimizer})))
    assert names[-3:] == ["task.scale.weight", "task.scale.bias", "group 0, parameter 6"]
    model = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 3))
    model[1].weight = model[0].weight
    assert list(name_all_parameters(make_run(None, model))) == ["0.weight", "0.bias", "1.bias"]


def test_tensors_of_another_shape_are_created() -> None:
    value = restore_in_place(torch.zeros(2), torch.ones(3), torch.device("cpu"))
    assert value.tolist() == [1, 1, 1]
    assert restore_in_place(None, [(torch.ones(1), {"a": 2})], torch.device("cpu")) == [
        (torch.ones(1), {"a": 2})
    ]
