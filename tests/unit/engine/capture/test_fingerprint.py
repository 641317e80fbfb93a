"""Tests of what a captured step would freeze."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import nn

from engine.parts import Sums, adder, make_run
from epochal.engine.capture.fingerprint import (
    StepDependencies,
    find_fingerprint_change,
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
        self.settings = SimpleNamespace(alpha=1.0)
        self.parts = [nn.Dropout(0.1)]


def changed(change: Any) -> str:
    task = Weighted()
    run = make_run(task, adder(dropout=0.2))
    before = take_fingerprint(run)
    change(task, run)
    return find_fingerprint_change(before, take_fingerprint(run))


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
        (lambda task, run: setattr(task.settings, "alpha", 0.3), "Weighted.settings"),
        (lambda task, run: setattr(task.parts[0], "p", 0.3), "Weighted.parts"),
        (lambda task, run: run.store.set("alpha", 1), "run.store 'alpha'"),
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
    assert find_fingerprint_change(before, take_fingerprint(run)) == ""
    optimizer.param_groups[0]["lr"] = 0.3
    assert find_fingerprint_change(before, take_fingerprint(run)) == "optim.0.lr"


def test_only_the_attributes_that_matter_are_compared() -> None:
    task = Weighted()
    run = make_run(task)
    before = take_fingerprint(run, StepDependencies({"names"}))
    task.weight = 9.0
    assert find_fingerprint_change(before, take_fingerprint(run, StepDependencies({"names"}))) == ""
    task.names.append("c")
    assert (
        find_fingerprint_change(before, take_fingerprint(run, StepDependencies({"names"})))
        == "Weighted.names"
    )


def test_the_loss_function_always_matters_and_of_the_store_what_was_read() -> None:
    task = Weighted()
    task.loss_fn = SimpleNamespace(eps=1.0)  # type: ignore[attr-defined]
    run = make_run(task)
    reads = StepDependencies(set(), {"alpha"})
    before = take_fingerprint(run, reads)
    run.store.set("beta", 1)
    assert find_fingerprint_change(before, take_fingerprint(run, reads)) == ""
    run.store.set("alpha", 1)
    assert find_fingerprint_change(before, take_fingerprint(run, reads)) == "run.store 'alpha'"
    before = take_fingerprint(run, reads)
    task.loss_fn.eps = 0.0  # type: ignore[attr-defined]
    assert find_fingerprint_change(before, take_fingerprint(run, reads)) == "Weighted.loss_fn"


def test_a_task_that_is_a_module_is_compared_like_one() -> None:
    class Whole(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.train_loader = Sums().train_loader
            self.head = nn.Dropout(0.1)

        batch_forward = Sums.batch_forward
        batch_loss = Sums.batch_loss

    task = Whole()
    run = make_run(task)
    before = take_fingerprint(run, StepDependencies({"head"}))
    task.head.p = 0.5
    assert (
        find_fingerprint_change(before, take_fingerprint(run, StepDependencies({"head"})))
        == "Whole.head.p"
    )
