"""Tests of several optimizers that are seen as one."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

from epochal.engine.optim.multi_optimizer import (
    Member,
    MemberOptions,
    Optimizers,
    add_total_loss,
    assign_parameters,
)
from epochal.errors import ConfigError


def two_nets() -> nn.ModuleDict:
    torch.manual_seed(0)
    return nn.ModuleDict({"a": nn.Linear(2, 2), "b": nn.Linear(2, 1)})


def joined(nets: nn.ModuleDict, **every: int) -> Optimizers:
    return Optimizers(
        [
            Member(
                name,
                torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9),
                MemberOptions(every=every.get(name, 1), loss=f"{name}_loss"),
            )
            for name, net in nets.items()
        ]
    )


def test_several_optimizers_have_the_groups_and_the_state_of_all() -> None:
    nets = two_nets()
    both = joined(nets)
    assert [group["name"] for group in both.param_groups] == ["a", "b"]
    assert both.param_groups[0] is both["a"].param_groups[0]
    for parameter in nets.parameters():
        parameter.grad = torch.ones_like(parameter)
    both.step()
    assert set(both.state) == set(nets.parameters())
    assert both["b"].state is both.state


def test_groups_are_named_after_optimizer_and_group() -> None:
    nets = two_nets()
    groups = [{"params": [one]} for one in nets["a"].parameters()]
    groups[0]["name"] = "matrix"
    both = Optimizers([Member("a", torch.optim.SGD(groups, lr=0.1))])
    assert [group["name"] for group in both.param_groups] == ["a/matrix", "a/1"]


def test_only_optimizers_that_are_due_step() -> None:
    nets = two_nets()
    both = joined(nets, b=3)
    acted = []
    for step in range(6):
        before = [nets[name].weight.clone() for name in nets]
        for parameter in nets.parameters():
            parameter.grad = torch.ones_like(parameter)
        both.choose_due(step)
        both.step()
        moved = [not torch.equal(nets[n].weight, w) for n, w in zip(nets, before, strict=True)]
        acted.append(moved[1])
        assert moved[0]
    assert acted == [False, False, True, False, False, True]
    assert (joined(nets).steps_together, both.steps_together) == (True, False)
    assert both.losses == ("a_loss", "b_loss")


def test_updates_of_several_optimizers_can_be_masked() -> None:
    nets = two_nets()
    both = Optimizers([Member("a", torch.optim.SGD(nets.parameters(), lr=0.1, fused=True))])
    before = nets["a"].weight.clone()
    for parameter in nets.parameters():
        parameter.grad = torch.ones_like(parameter)
    optimizer: Any = both
    optimizer.found_inf, optimizer.grad_scale = torch.ones(()), None
    both.step()
    assert torch.equal(nets["a"].weight, before)
    assert not hasattr(both["a"], "found_inf")


def test_two_optimizers_with_the_same_parameter_are_refused() -> None:
    nets = two_nets()
    one = Member("a", torch.optim.SGD(nets.parameters(), lr=0.1))
    other = Member("b", torch.optim.SGD(nets["b"].parameters(), lr=0.1))
    with pytest.raises(ConfigError, match=r"optim\.b: has a parameter of shape \(1, 2\) that 'a'"):
        Optimizers([one, other])


def test_optimizers_with_their_own_loss_or_state_are_refused() -> None:
    class Own(torch.optim.SGD):
        def state_dict(self) -> dict[str, Any]:
            return {}

    with pytest.raises(ConfigError, match=r"optim\.a\.type: LBFGS evaluates the loss itself"):
        Optimizers([Member("a", torch.optim.LBFGS(two_nets().parameters()))])
    with pytest.raises(ConfigError, match="Own has its own state_dict"):
        Optimizers([Member("a", Own(two_nets().parameters(), lr=0.1))])


def test_new_groups_are_refused() -> None:
    both = joined(two_nets())
    for optimizer in (both, both["a"]):
        with pytest.raises(ConfigError, match="cannot get further parameters during a run"):
            optimizer.add_param_group({"params": [nn.Parameter(torch.zeros(1))]})
        assert len(optimizer.param_groups) == (2 if optimizer is both else 1)


def test_one_of_several_optimizers_can_have_the_rest() -> None:
    parameters = dict(two_nets().named_parameters())
    assert assign_parameters(parameters, {"x": {"a.weight"}, "y": None}) == {
        "x": {"a.weight"},
        "y": {"a.bias", "b.weight", "b.bias"},
    }


def test_each_trained_parameter_needs_exactly_one_optimizer() -> None:
    parameters = dict(two_nets().named_parameters())
    chosen = {"x": ["a.weight"], "y": ["a.weight", "b.bias"]}
    with pytest.raises(ConfigError, match=r"optim\.y\.match: 'a\.weight' is trained by 'x'"):
        assign_parameters(parameters, chosen)
    chosen = {"x": ["a.weight", "a.bias"], "y": ["b.weight"]}
    with pytest.raises(ConfigError, match=r"trains 1 parameters, such as 'b\.bias'"):
        assign_parameters(parameters, chosen)
    parameters["b.bias"].requires_grad = False
    assert assign_parameters(parameters, chosen)["y"] == {"b.weight"}


def test_the_loss_is_the_sum_of_the_losses_that_are_minimised() -> None:
    table: list[tuple[Any, Any]] = [
        ({"g": (1.0, 4), "d": (2.0, 4)}, (3.0, 4)),
        ({"g": 1.0, "d": 2.0}, 3.0),
        ({"g": (1.0, 4), "d": (2.0, 4), "loss": (9.0, 1)}, (9.0, 1)),
    ]
    for given, total in table:
        losses = add_total_loss(lambda out, batch, given=given: given, ("g", "d"))(None, None)
        assert losses == {**given, "loss": total}
    for given in ({"g": 1.0}, 3.0, None):  # a loss is missing: another check reports it
        assert (
            add_total_loss(lambda out, batch, given=given: given, ("g", "d"))(None, None) == given
        )
