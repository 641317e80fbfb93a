"""Tests of rules and the groups that come of them."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from epochal.engine.optim.param_groups import GroupRule, group_parameters
from epochal.errors import ConfigError, Place

OPTIONS = {"lr": 0.1, "weight_decay": 0.5}


class Net(nn.Module):
    """Blocks between a stem and a head, whose weight is that of the stem."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Linear(2, 2)
        self.blocks = nn.ModuleList(
            [nn.Sequential(nn.LayerNorm(2), nn.Linear(2, 2)) for _ in range(2)]
        )
        self.head = nn.Linear(2, 2)
        self.head.weight = self.stem.weight


def rule(match: Any = (), module: Any = (), **values: Any) -> GroupRule:
    own = {key: values.pop(key) for key in ("freeze", "name") if key in values}
    texts = [(one,) if isinstance(one, str) else tuple(one) for one in (match, module)]
    return GroupRule(key="optim.groups.0", match=texts[0], module=texts[1], options=values, **own)


def grouped(model: nn.Module, *rules: GroupRule, **more: Any) -> dict[str, dict[str, Any]]:
    """By name of the group: its options, and under ``params`` the names of its parameters."""
    names = {id(parameter): name for name, parameter in model.named_parameters()}
    groups = group_parameters(model, rules, options=OPTIONS, **more).groups
    return {
        group["name"]: {
            **{key: value for key, value in group.items() if key not in ("name", "rule")},
            "params": [names[id(one)] for one in group["params"]],
        }
        for group in groups
    }


def test_without_rules_there_is_one_group_without_options() -> None:
    model = Net()
    names = [name for name, _ in model.named_parameters()]
    assert grouped(model) == {"rest": {"params": names}}


def test_a_rule_makes_a_group_of_what_it_matches() -> None:
    found = grouped(Net(), rule("head", lr=0.01))
    assert found["head"] == {"params": ["stem.weight", "head.bias"], "lr": 0.01}
    assert list(found) == ["head", "rest"]  # in the order of the first parameter of each


def test_later_rules_refine_earlier_ones_key_by_key() -> None:
    rules = [rule("*.bias", weight_decay=0.0), rule("blocks", lr=0.2), rule("blocks.0", lr=0.3)]
    found = grouped(Net(), *rules)
    assert found["bias"] == {"params": ["stem.bias", "head.bias"], "weight_decay": 0.0}
    assert found["bias+blocks"]["params"] == ["blocks.1.0.bias", "blocks.1.1.bias"]
    assert (found["bias+blocks"]["lr"], found["bias+blocks"]["weight_decay"]) == (0.2, 0.0)
    assert found["blocks+blocks.0"]["lr"] == 0.3
    assert found["bias+blocks+blocks.0"] == {
        "params": ["blocks.0.0.bias", "blocks.0.1.bias"],
        "weight_decay": 0.0,
        "lr": 0.3,
    }


def test_a_factor_multiplies_the_rate_of_the_optimizer_and_not_that_of_another_rule() -> None:
    found = grouped(Net(), rule("head.bias", lr=7.0), rule("head.bias", lr_mult=10))
    assert found["head.bias+head.bias"]["lr"] == 1.0
    found = grouped(Net(), rule("head.bias", lr_mult=10), rule("head.bias", lr=7.0))
    assert found["head.bias+head.bias"]["lr"] == 7.0


def test_match_and_module_must_both_hold() -> None:
    found = grouped(Net(), rule("blocks.0", "LayerNorm", weight_decay=0.0, name="norms"))
    assert found["norms"]["params"] == ["blocks.0.0.weight", "blocks.0.0.bias"]


def test_a_list_of_patterns_or_classes_matches_any_of_them() -> None:
    found = grouped(Net(), rule(["stem.bias", "head.bias"], lr=1.0))
    assert found["stem.bias_head.bias"]["params"] == ["stem.bias", "head.bias"]
    found = grouped(Net(), rule((), ["LayerNorm", "Linear"], lr=1.0, name="all"))
    assert list(found) == ["all"]


def test_frozen_parameters_are_in_no_group() -> None:
    model = Net()
    made = group_parameters(
        model, [rule("blocks", freeze=True), rule("blocks.1", freeze=False)], options=OPTIONS
    )
    assert made.frozen == tuple(
        f"blocks.0.{i}.{name}" for i in (0, 1) for name in ("weight", "bias")
    )
    assert sum(len(group["params"]) for group in made.groups) == 7
    assert [group["name"] for group in made.groups] == ["rest"]


def test_rules_do_not_train_what_needs_no_gradient() -> None:
    model = Net()
    model.stem.bias.requires_grad = False
    found = grouped(model, rule("stem", freeze=False, lr=1.0))
    assert found["stem"]["params"] == ["stem.weight"]


def test_rules_override_no_decay() -> None:
    model = Net()
    found = grouped(model, rule("head", weight_decay=0.1), no_decay="auto")
    assert found["head"]["weight_decay"] == 0.1
    assert "head.bias" in found["head"]["params"]
    assert found["no_decay"]["weight_decay"] == 0.0
    assert found["rest"]["params"] == ["blocks.0.1.weight", "blocks.1.1.weight"]


def test_no_decay_makes_no_group_without_weight_decay() -> None:
    groups = group_parameters(Net(), [], options={"lr": 1, "weight_decay": 0}, no_decay="auto")
    assert [group["name"] for group in groups.groups] == ["rest"]


def test_layer_decay_multiplies_the_rates_of_rules() -> None:
    found = grouped(Net(), rule("blocks.0", lr=1.0), layer_decay=0.5)
    assert {name: group["lr"] for name, group in found.items()} == {
        "layer0": 0.1 * 0.125,
        "blocks.0+layer1": 1.0 * 0.25,
        "layer2": 0.1 * 0.5,
        "layer3": 0.1,
    }


def test_group_names_are_unique() -> None:
    found = grouped(Net(), rule("head.bias", lr=1.0), rule("stem.bias", lr=2.0, name="head.bias"))
    assert {name: group.get("lr") for name, group in found.items()} == {
        "rest": None,
        "head.bias": 2.0,
        "head.bias-2": 1.0,
    }


def test_a_rule_that_matches_nothing_is_refused() -> None:
    table = [
        (rule("haed.*", lr=1.0), "'haed.*' matches no parameter", "near it: head"),
        (rule(["head", "x"], lr=1.0), "'x' matches no parameter", "there are: "),
        (
            rule((), "LayerNrm", lr=1.0),
            "no parameter is in a module of class",
            "near it: LayerNorm",
        ),
        (rule((), "ReLU", lr=1.0), "no parameter is in a module of class 'ReLU'", "there are: "),
        (rule("head", "LayerNorm", lr=1.0), "no parameter has both such a name and", ""),
        (rule("gone", freeze=True), "'gone' matches no parameter", ""),
    ]
    for wrong, what, hint in table:
        with pytest.raises(ConfigError, match=r"optim\.groups\.0") as error:
            group_parameters(Net(), [wrong], options=OPTIONS)
        assert what in str(error.value)
        assert hint in str(error.value)
    with pytest.raises(ConfigError, match="'head' matches no parameter"):
        group_parameters(Net(), [rule("head", lr=1.0)], options=OPTIONS, only={"stem.bias"})


def test_all_rules_that_match_nothing_are_reported_with_their_places() -> None:
    wrong = [
        rule(["gone", "head"], "Conv9d", lr=1.0),
        GroupRule(key="optim.freeze", match=("x",), freeze=True, place=Place("c.yaml", 3, 5)),
    ]
    with pytest.raises(ConfigError, match=r"set in c\.yaml:3:5") as error:
        group_parameters(Net(), wrong, options=OPTIONS)
    assert [problem.what for problem in error.value.problems] == [
        "'gone' matches no parameter",
        "no parameter is in a module of class 'Conv9d'",
        "'x' matches no parameter",
    ]


def test_a_factor_needs_a_rate() -> None:
    for rules, layer_decay in (([], 0.5), ([rule("head", lr_mult=2)], None)):
        with pytest.raises(ConfigError, match=r"optim\.lr: there is no rate to multiply"):
            group_parameters(Net(), rules, options={}, layer_decay=layer_decay)


PATTERNS = ["*.bias", "stem", "head.*", "blocks.0", "blocks.*.1", "*.weight", "*"]


@st.composite
def some_rules(draw: Any) -> list[GroupRule]:
    made = []
    for _ in range(draw(st.integers(0, 5))):
        values: dict[str, Any] = {}
        if draw(st.booleans()):
            values["lr"] = draw(st.sampled_from([0.1, 0.2]))
        if draw(st.booleans()):
            values["weight_decay"] = draw(st.sampled_from([0.0, 0.5]))
        if draw(st.booleans()):
            values["freeze"] = draw(st.booleans())
        if draw(st.booleans()):
            made.append(rule(draw(st.sampled_from(PATTERNS)), **values))
        else:
            made.append(rule((), draw(st.sampled_from(["LayerNorm", "Linear"])), **values))
    return made


@settings(max_examples=60, deadline=None)
@given(
    rules=some_rules(),
    no_decay=st.sampled_from([None, "auto"]),
    layer_decay=st.sampled_from([None, 0.5]),
    stay=st.sets(st.integers(0, 10)),
)
def test_each_trainable_parameter_is_in_exactly_one_group_and_frozen_ones_in_none(
    rules: list[GroupRule], no_decay: str | None, layer_decay: float | None, stay: set[int]
) -> None:
    model = Net()
    for index, parameter in enumerate(model.parameters()):
        parameter.requires_grad = index not in stay
    made = group_parameters(
        model, rules, options=OPTIONS, no_decay=no_decay, layer_decay=layer_decay
    )
    held = [id(one) for group in made.groups for one in group["params"]]
    wanted = [
        id(parameter)
        for name, parameter in model.named_parameters()
        if parameter.requires_grad and name not in made.frozen
    ]
    assert sorted(held) == sorted(wanted)
    names = [group["name"] for group in made.groups]
    assert len(set(names)) == len(names)
    if held:
        torch.optim.AdamW(made.groups, lr=0.1)  # torch takes them
