"""Tests of stages that are refused before the first step."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch.optim import lr_scheduler

from engine.parts import Sums, adder, fit
from engine.staged import Mixing, Plain, staged, terms
from epochal.components.schedules import Linear
from epochal.engine import Run, TorchSchedule
from epochal.engine.interfaces.schedule import OptimizerSchedules
from epochal.engine.optim.multi_optimizer import Member, Optimizers
from epochal.errors import ConfigError


def refuse(run: Run, message: str, error: type[Exception] = ConfigError) -> None:
    with pytest.raises(error, match=message):
        fit(run)
    assert run.step == 0, message


class Bare(Sums):
    def on_stage_start(self, *, mix: float) -> None:
        pass


class Listed(Sums):
    def __init__(self) -> None:
        super().__init__()
        self.train_loader = list(self.train_loader)


def one_cycle(optimizer: torch.optim.Optimizer) -> TorchSchedule:
    return TorchSchedule(lr_scheduler.OneCycleLR(optimizer, max_lr=1, total_steps=-1))


def test_unknown_or_missing_arguments_of_the_task_are_refused() -> None:
    unknown = r"stages.1.task.mixx: Mixing.on_stage_start takes no 'mixx'\n.*'mix'"
    table: list[tuple[Any, dict[str, Any], str]] = [
        (Mixing, {"mixx": 1}, unknown),
        (Mixing, {"run": 1}, "Mixing.on_stage_start takes no 'run'"),
        (Sums, {"mix": 1}, r"takes no 'mix'\n  write def on_stage_start\(self, \*, mix\)"),
        (Bare, {}, r"stages.0.task.mix: missing; Bare.on_stage_start requires it"),
    ]
    for task, params, message in table:
        refuse(staged(("1st", {}), ("1st", {"task": params}), task=task()), message)


def test_a_stage_that_changes_what_the_run_does_not_have_is_refused() -> None:
    fixed = {"parts": {"make_optimizer": None}}
    lossy = {"task": Plain(), "parts": {"loss": terms()}}
    table: list[tuple[dict[str, Any], dict[str, Any], str]] = [
        ({"freeze": ("nowhere.*",)}, {}, r"stages.1.freeze: 'nowhere.\*' matches no parameter"),
        ({"unfreeze": ("3.wieght",)}, {}, r"stages.1.unfreeze: '3.wieght' matches.*\n.*3.weight"),
        ({"loss": {"aux": 1}}, {}, "stages.1.loss: there is no section loss"),
        ({"loss": {"fat": 1}}, lossy, r"no term 'fat'\n  did you mean 'far'"),
        ({"batch_size": 2}, {"task": Listed()}, "stages.1.batch_size: the training loader, a list"),
        ({"optim": {"type": "SGD"}}, fixed, "was given as an object and has no 'type' to change"),
    ]
    for change, given, message in table:
        refuse(staged(("1st", {}), ("1st", change), **given), message)


def test_a_change_of_several_given_optimizers_names_one_of_them_and_its_options() -> None:
    table: list[tuple[dict[str, Any], str]] = [
        ({"lr": 1}, "optim.lr: there is no optimizer 'lr'\n  known: accumulate, .*only"),
        ({"onl": {"lr": 1}}, "there is no optimizer 'onl'\n  did you mean 'only'"),
        ({"only": {"lrr": 1}}, "optim.only.lrr: SGD was given as an object and has no 'lrr'"),
    ]
    for change, message in table:
        model = adder()
        own = Optimizers([Member("only", torch.optim.SGD(model.parameters(), lr=0.1))])
        parts = {"optimizer": own, "make_optimizer": None}
        stages = ("1st", {}), ("1st", {"optim": change})
        refuse(staged(*stages, model=model, parts=parts), message)


def test_optimizers_and_schedules_that_cannot_be_built_are_refused() -> None:
    run = staged(("1st", {}), ("1st", {"optim": {"lr": 0.1}}), ("1st", {"optim": {"lr": -1}}))
    refuse(run, "Invalid learning rate: -1", ValueError)
    refuse(staged(("1st", {}), ("1st", {"schedule": one_cycle})), "total_steps", ValueError)


def test_a_scheduler_of_torch_cannot_continue_with_other_rates() -> None:
    table: list[list[dict[str, Any]]] = [
        [{"optim": {"lr": 0.1}}],
        [{}, {"optim": {"state": "reset"}}],
        [{"schedule": lambda optimizer: Linear()}, {}],
        [{}, {"optim": {"no_decay": "auto"}}],
        [{}, {"unfreeze": ("3.bias",)}],
    ]
    for stages in table:
        model = adder()
        model[3].bias.requires_grad_(False)
        trained = [one for one in model.parameters() if one.requires_grad]
        optimizer = torch.optim.AdamW(trained, lr=0.01)
        schedule = TorchSchedule(lr_scheduler.StepLR(optimizer, 2))
        parts = {"optimizer": optimizer, "schedule": schedule}
        run = staged(*[("1st", one) for one in stages], model=model, parts=parts)
        refuse(run, "StepLR of torch cannot continue")


def test_a_scheduler_of_torch_of_one_of_several_optimizers_cannot_continue_either() -> None:
    model = adder()
    own = Optimizers([Member("only", torch.optim.SGD(model.parameters(), lr=0.1))])
    schedule = TorchSchedule(lr_scheduler.StepLR(own["only"], 2))
    parts = {"optimizer": own, "schedule": OptimizerSchedules({"only": (own["only"], schedule)})}
    given = ("1st", {"schedule": lambda optimizer: Linear()}), ("1st", {})
    run = staged(*given, model=model, parts=parts)
    refuse(run, r"stages\.1\.schedule: StepLR of torch cannot continue")


def test_the_check_changes_nothing() -> None:
    model = adder()
    run = staged(
        *[("2st", {"freeze": ("0",)}), ("2st", {"optim": {"type": "SGD", "lr": 0.1}})], model=model
    )
    optimizer = run.optimizer
    seen: list[Any] = []
    run.on("run_start", lambda run: seen.append(run.optimizer is optimizer))
    run.on("run_start", lambda run: seen.append(model[0].weight.requires_grad))
    fit(run)
    assert seen == [True, False]
