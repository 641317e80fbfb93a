"""Tests of groups that a task or a model chooses itself."""

from __future__ import annotations

from typing import Any

import pytest
from torch import nn

from epochal.engine.optim.optim_groups import collect_group_rules
from epochal.errors import TaskError

KNOWN = ["lr", "weight_decay"]


class Net(nn.Module):
    def __init__(self, groups: Any = None) -> None:
        super().__init__()
        self.body = nn.Linear(2, 2)
        self.head = nn.Linear(2, 2)
        self.groups = groups

    def optim_groups(self, optim: dict[str, Any]) -> Any:
        return self.groups(self, optim)


def ask(groups: Any, task: Any = None, known: Any = KNOWN) -> tuple[list[Any], dict[str, Any]]:
    return collect_group_rules(Net(groups), task, {"lr": 0.1}, known)


def test_without_optim_groups_there_are_no_rules() -> None:
    assert collect_group_rules(nn.Linear(1, 1), object(), {}, KNOWN) == ([], {})  # type: ignore[arg-type]


def test_groups_can_be_parameters_names_or_patterns() -> None:
    def choose(model: Net, optim: dict[str, Any]) -> list[dict[str, Any]]:
        return [
            {"params": model.body.parameters(), "lr": optim["lr"] / 2, "name": "body"},
            {"params": "head.weight", "lr_mult": 3},
            {"params": [("head.bias", model.head.bias)], "freeze": True},
        ]

    rules, more = ask(choose)
    assert more == {}
    assert [rule.name for rule in rules] == ["body", "group1", "group2"]
    assert rules[0].members == {"body.weight", "body.bias"}
    assert rules[0].options == {"lr": 0.05}
    assert rules[1].options == {"lr_mult": 3}
    assert (rules[2].members, rules[2].freeze) == ({"head.bias"}, True)


def test_the_task_is_called_first_and_can_add_its_own_parameters() -> None:
    class Task:
        def __init__(self) -> None:
            self.weights = nn.Linear(1, 1, bias=False)

        def optim_groups(self, model: nn.Module) -> list[dict[str, Any]]:
            return [{"params": [*model.parameters(), self.weights.weight], "name": "all"}]

    task = Task()
    rules, more = ask(None, task)
    assert more == {"task.weights.weight": task.weights.weight}
    assert "task.weights.weight" in rules[0].members


def test_groups_that_cannot_be_used_are_refused() -> None:
    table: list[tuple[Any, str]] = [
        (None, "returned None\n  return a list of"),
        ([{"lr": 1}], r"group 0 is \{'lr': 1\}\n  write"),
        ([{"params": "*", "lrr": 1}], "group 0 has an unknown option 'lrr'\n  did you mean 'lr'"),
        ([{"params": "hed"}], "group 0: 'hed' matches no parameter\n  near it: head"),
        ([{"params": [nn.Linear(1, 1).bias]}], "not a parameter of model or task: Parameter"),
        ([{"params": "*"}, {"params": "head.bias"}], "gives 'head.bias' twice"),
        ([{"params": "head"}], "leaves out 2 trainable parameters, such as 'body.weight'"),
    ]
    for groups, what in table:
        with pytest.raises(TaskError, match=rf"^Net\.optim_groups: .*{what}"):
            ask(lambda model, optim, groups=groups: groups)


def test_an_optimizer_with_open_arguments_takes_any_option() -> None:
    rules, _ = ask(lambda model, optim: [{"params": "*", "colour": 1}], known=None)
    assert rules[0].options == {"colour": 1}
