"""Tests of what a captured step would freeze."""

from __future__ import annotations

from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import torch
from torch import nn

from engine.parts import Sums, adder, make_run
from epochal.engine.capture.fingerprint import (
    StepDependencies,
    find_fingerprint_change,
    find_position_read,
    recording_reads,
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


CHANGES: dict[str, Any] = {
    "Weighted.weight": lambda task, run: setattr(task, "weight", 0.6),
    "Weighted.names": lambda task, run: task.names.append("c"),
    "Weighted.table": lambda task, run: task.table.update(x=(1, 3)),
    "Weighted.function": lambda task, run: setattr(task, "function", max),
    "Weighted.seen": lambda task, run: task.seen.append(torch.ones(1)),
    "Weighted.new": lambda task, run: setattr(task, "new", 1),
    "Weighted.head.p": lambda task, run: setattr(task.head, "p", 0.3),
    "Weighted.settings": lambda task, run: setattr(task.settings, "alpha", 0.3),
    "Weighted.parts": lambda task, run: setattr(task.parts[0], "p", 0.3),
    "run.store 'alpha'": lambda task, run: run.store.set("alpha", 1),
    "model.2.p": lambda task, run: setattr(run.model[2], "p", 0.3),
    "model.2.training": lambda task, run: run.model[2].eval(),
    "model.0.weight.requires_grad": lambda task, run: run.model[0].weight.requires_grad_(False),
    "model.1._forward_hooks": lambda task, run: run.model[1].register_forward_hook(print),
    "optim.0.weight_decay": lambda _, run: run.optimizer.param_groups[0].update(weight_decay=1.0),
    "optim.1.params": lambda _, run: run.optimizer.add_param_group({"params": [nn.Parameter()]}),
}


def test_a_change_of_a_plain_value_is_found_and_named() -> None:
    for where, change in CHANGES.items():
        assert changed(change) == where


def test_tensors_and_loaders_may_change() -> None:
    assert changed(lambda task, run: None) == ""
    assert changed(lambda task, run: run.model[0].weight.data.add_(1)) == ""
    assert changed(lambda task, run: setattr(task, "train_loader", [1])) == ""


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


def test_the_loss_function_always_matters_and_the_store_if_it_is_read() -> None:
    task = Weighted()
    task.loss_fn = SimpleNamespace(eps=1.0)  # type: ignore[attr-defined]
    run = make_run(task)
    reads = StepDependencies()
    before = take_fingerprint(run, reads)
    run.store.set("beta", 1)
    assert find_fingerprint_change(before, take_fingerprint(run, reads)) == ""
    reads = StepDependencies(has_store=True)
    before = take_fingerprint(run, reads)
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


@dataclass(frozen=True)
class Fixed:
    weight: float = 0.5


class Watchful(Weighted):
    """Has attributes that are made when they are read."""

    def __getattribute__(self, name: str) -> Any:
        return super().__getattribute__(name)

    def __getattr__(self, name: str) -> str:
        return f"made {name}"


def test_attributes_that_are_read_in_a_block_are_noted() -> None:
    for owner in (Weighted(), Fixed(), Watchful()):
        kind: Any = type(owner)
        own, other = dict(vars(kind)), kind()
        with recording_reads(owner) as lines:
            assert owner.weight == 0.5
            assert isinstance(getattr(other, "train_loader", None), object)
        assert lines is not None
        assert "weight" in lines
        assert "test_fingerprint.py:" in lines["weight"]
        assert not {"names", "train_loader"} & lines.keys()
        assert type(owner) is kind
        assert dict(vars(kind)) == own


def test_an_attribute_that_is_made_when_it_is_read_is_noted_too() -> None:
    owner = Watchful()
    with recording_reads(owner) as lines:
        assert owner.gamma == "made gamma"
    assert lines is not None
    assert "gamma" in lines


def test_reads_of_an_object_of_c_code_are_unknown() -> None:
    with recording_reads(SimpleNamespace()) as lines:
        pass
    assert lines is None


def test_a_line_that_reads_the_position_of_the_run_is_named() -> None:
    for name in (*("step", "epoch", "samples", "batch_index"), *("feed", "learning_rates")):
        run = make_run()
        with recording_reads(run) as lines:
            getattr(run, name)
        assert lines is not None
        assert find_position_read(lines).startswith(f"run.{name} is read in {__file__}:")


def test_what_epochal_reads_of_the_run_is_no_position_read() -> None:
    run = make_run()
    with recording_reads(run) as lines:
        assert run.limits is not None
        run.log({"x": 1.0})
        run.batch_index = 3
    assert lines is not None
    assert find_position_read(lines) == ""


def test_every_way_to_look_up_a_name_reads_the_store() -> None:
    for look_up in (lambda one: one.get("a"), lambda one: one.try_get("b"), lambda one: "c" in one):
        store = make_run().store
        store.set("a", 1)
        with recording_reads(store) as lines:
            look_up(store)
        assert lines


def test_reads_of_several_shapes_count_together() -> None:
    both = StepDependencies({"a"}, has_store=True).union(StepDependencies({"b"}))
    assert both == StepDependencies({"a", "b"}, has_store=True)
    assert StepDependencies({"a"}).union(StepDependencies(None)).task is None
    assert StepDependencies(None).union(StepDependencies({"a"})).task is None
