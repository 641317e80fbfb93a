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


def test_it_has_the_groups_and_the_state_of_all() -> None:
    nets = two_nets()
    both = joined(nets)
    assert [group["name"] for group in both.param_groups] == ["a", "b"]
    assert both.param_groups[0] is both["a"].param_groups[0]
    for parameter in nets.parameters():
        parameter.grad = torch.ones_like(parameter)
    both.step()
    assert set(both.state) == set(nets.parameters())
    assert both["b"].state is both.state


def test_groups_of_one_are_named_after_both() -> None:
    nets = two_nets()
    groups = [{"params": [one]} for one in nets["a"].parameters()]
    groups[0]["name"] = "matrix"
    both = Optimizers([Member("a", torch.optim.SGD(groups, lr=0.1))])
    assert [group["name"] for group in both.param_groups] == ["a/matrix", "a/1"]


def test_only_those_step_that_are_due() -> None:
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


def test_an_update_can_be_masked_like_that_of_one() -> None:
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


def test_two_may_not_have_the_same_parameter() -> None:
    nets = two_nets()
    one = Member("a", torch.optim.SGD(nets.parameters(), lr=0.1))
    other = Member("b", torch.optim.SGD(nets["b"].parameters(), lr=0.1))
    with pytest.raises(ConfigError, match=r"optim\.b: has a parameter of shape \(1, 2\) that 'a'"):
        Optimizers([one, other])


def test_what_evaluates_by_itself_cannot_be_one_of_several() -> None:
    nets = two_nets()
    with pytest.raises(ConfigError, match=r"optim\.a\.type: LBFGS evaluates the loss itself"):
        Optimizers([Member("a", torch.optim.LBFGS(nets.parameters()))])


def test_what_keeps_its_own_state_cannot_be_one_of_several() -> None:
    class Own(torch.optim.SGD):
        def state_dict(self) -> dict[str, Any]:
            return {}

    with pytest.raises(ConfigError, match="Own has its own state_dict"):
        Optimizers([Member("a", Own(two_nets().parameters(), lr=0.1))])


def test_new_groups_are_refused_by_all_and_by_each() -> None:
    both = joined(two_nets())
    for optimizer in (both, both["a"]):
        with pytest.raises(ConfigError, match="take no further parameters once they are joined"):
            optimizer.add_param_group({"params": [nn.Parameter(torch.zeros(1))]})
        assert len(optimizer.param_groups) == (2 if optimizer is both else 1)


def test_parameters_are_shared_out_by_what_each_asks_for() -> None:
    parameters = dict(two_nets().named_parameters())
    assert assign_parameters(parameters, {"x": {"a.weight"}, "y": None}) == {
        "x": {"a.weight"},
        "y": {"a.bias", "b.weight", "b.bias"},
    }


def test_what_two_ask_for_is_refused() -> None:
    parameters = dict(two_nets().named_parameters())
    chosen = {"x": ["a.weight"], "y": ["a.weight", "b.bias"]}
    with pytest.raises(ConfigError, match=r"optim\.y\.match: 'a\.weight' is trained by 'x'"):
        assign_parameters(parameters, chosen)


def test_what_nobody_asks_for_is_refused_unless_it_is_frozen() -> None:
    parameters = dict(two_nets().named_parameters())
    chosen = {"x": ["a.weight", "a.bias"], "y": ["b.weight"]}
    with pytest.raises(ConfigError, match=r"trains 1 parameters, such as 'b\.bias'"):
        assign_parameters(parameters, chosen)
    parameters["b.bias"].requires_grad = False
    assert assign_parameters(parameters, chosen)["y"] == {"b.weight"}


@pytest.mark.parametrize(
    ("given", "total"),
    [
        ({"g": (1.0, 4), "d": (2.0, 4)}, (3.0, 4)),
        ({"g": 1.0, "d": 2.0}, 3.0),
        ({"g": (1.0, 4), "d": (2.0, 4), "loss": (9.0, 1)}, (9.0, 1)),
    ],
)
def test_the_loss_is_the_sum_of_those_that_are_descended(given: Any, total: Any) -> None:
    losses = add_total_loss(lambda out, batch: given, ("g", "d"))(None, None)
    assert losses["loss"] == total
    assert losses["g"] == given["g"]


@pytest.mark.parametrize("given", [{"g": 1.0}, 3.0, None])
def test_losses_that_are_not_all_there_stay_as_they_are(given: Any) -> None:
    assert add_total_loss(lambda out, batch: given, ("g", "d"))(None, None) == given
