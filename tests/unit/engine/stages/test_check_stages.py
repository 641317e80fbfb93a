"""Tests of what stages ask for and a run does not have."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch.optim import lr_scheduler

from engine.parts import Sums, adder, fit
from engine.staged import Mixing, Plain, staged, terms
from epochal.components.optim.schedules import Linear
from epochal.engine import TorchSchedule
from epochal.engine.interfaces.schedule import OptimizerSchedules
from epochal.engine.optim.multi_optimizer import Member, Optimizers
from epochal.errors import ConfigError


class Bare(Sums):
    def on_stage_start(self, *, mix: float) -> None:
        pass


@pytest.mark.parametrize(
    ("task", "params", "message"),
    [
        (
            Mixing,
            {"mixx": 1},
            r"stages.1.task.mixx: Mixing.on_stage_start takes no 'mixx'\n.*'mix'",
        ),
        (Mixing, {"run": 1}, "Mixing.on_stage_start takes no 'run'"),
        (Sums, {"mix": 1}, r"takes no 'mix'\n  write def on_stage_start\(self, \*, mix\)"),
        (Bare, {}, r"stages.0.task.mix: missing; Bare.on_stage_start requires it"),
    ],
)
def test_what_the_task_does_not_take_is_refused_before_the_first_step(
    task: type, params: dict[str, Any], message: str
) -> None:
    run = staged(("1st", {}), ("1st", {"task": params}), task=task())
    with pytest.raises(ConfigError, match=message):
        fit(run)
    assert run.step == 0


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"freeze": ("nowhere.*",)}, r"stages.1.freeze: 'nowhere.\*' matches no parameter"),
        ({"unfreeze": ("3.wieght",)}, r"stages.1.unfreeze: '3.wieght' matches.*\n.*3.weight"),
        ({"loss": {"aux": 1}}, "stages.1.loss: there is no section loss"),
    ],
)
def test_what_the_run_does_not_have_is_refused_before_the_first_step(
    given: dict[str, Any], message: str
) -> None:
    run = staged(("1st", {}), ("1st", given))
    with pytest.raises(ConfigError, match=message):
        fit(run)
    assert run.step == 0


def test_batches_that_the_task_makes_itself_keep_their_size() -> None:
    task = Sums()
    task.train_loader = list(task.train_loader)
    run = staged(("1st", {}), ("1st", {"batch_size": 2}), task=task)
    with pytest.raises(ConfigError, match=r"stages.1.batch_size: the training loader, a list"):
        fit(run)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"lr": 1}, "optim.lr: there is no optimizer 'lr'\n  known: accumulate, .*only"),
        ({"onl": {"lr": 1}}, "there is no optimizer 'onl'\n  did you mean 'only'"),
        ({"only": {"lrr": 1}}, "optim.only.lrr: SGD came as an object and has no 'lrr'"),
    ],
)
def test_what_several_optimizers_do_not_have_is_refused_before_the_first_step(
    change: dict[str, Any], message: str
) -> None:
    model = adder()
    own = Optimizers([Member("only", torch.optim.SGD(model.parameters(), lr=0.1))])
    parts = {"optimizer": own, "make_optimizer": None}
    run = staged(("1st", {}), ("1st", {"optim": change}), model=model, parts=parts)
    with pytest.raises(ConfigError, match=message):
        fit(run)


def test_an_unknown_term_is_refused_before_the_first_step() -> None:
    run = staged(("1st", {}), ("1st", {"loss": {"fat": 1}}), task=Plain(), parts={"loss": terms()})
    with pytest.raises(ConfigError, match=r"no term 'fat'\n  did you mean 'far'"):
        fit(run)


def test_an_optimizer_that_cannot_be_made_is_refused_before_the_first_step() -> None:
    run = staged(("1st", {}), ("1st", {"optim": {"lr": 0.1}}), ("1st", {"optim": {"lr": -1}}))
    with pytest.raises(ValueError, match="Invalid learning rate: -1"):
        fit(run)
    assert run.step == 0


def test_a_schedule_that_cannot_be_made_is_refused_before_the_first_step() -> None:
    def one_cycle(optimizer: torch.optim.Optimizer) -> TorchSchedule:
        return TorchSchedule(lr_scheduler.OneCycleLR(optimizer, max_lr=1, total_steps=-1))

    run = staged(("1st", {}), ("1st", {"schedule": one_cycle}))
    with pytest.raises(ValueError, match="total_steps"):
        fit(run)
    assert run.step == 0


def test_what_an_object_cannot_do_is_refused_before_the_first_step() -> None:
    run = staged(("1st", {}), ("1st", {"optim": {"type": "SGD"}}), parts={"make_optimizer": None})
    with pytest.raises(ConfigError, match="came as an object and has no 'type' to change"):
        fit(run)
    assert run.step == 0


@pytest.mark.parametrize(
    "stages",
    [
        [{"optim": {"lr": 0.1}}],
        [{}, {"optim": {"state": "reset"}}],
        [{"schedule": lambda optimizer: Linear()}, {}],
        [{}, {"optim": {"no_decay": "auto"}}],
        [{}, {"unfreeze": ("3.bias",)}],
    ],
)
def test_a_scheduler_of_torch_is_not_carried_into_other_rates(stages: list[dict[str, Any]]) -> None:
    model = adder()
    model[3].bias.requires_grad_(False)
    trained = [one for one in model.parameters() if one.requires_grad]
    optimizer = torch.optim.AdamW(trained, lr=0.01)
    schedule = TorchSchedule(lr_scheduler.StepLR(optimizer, 2))
    given = [("1st", one) for one in stages]
    run = staged(*given, model=model, parts={"optimizer": optimizer, "schedule": schedule})
    with pytest.raises(ConfigError, match="StepLR of torch cannot go on"):
        fit(run)
    assert run.step == 0


def test_nor_is_that_of_one_of_several_optimizers() -> None:
    model = adder()
    own = Optimizers([Member("only", torch.optim.SGD(model.parameters(), lr=0.1))])
    schedule = TorchSchedule(lr_scheduler.StepLR(own["only"], 2))
    parts = {"optimizer": own, "schedule": OptimizerSchedules({"only": (own["only"], schedule)})}
    given = ("1st", {"schedule": lambda optimizer: Linear()}), ("1st", {})
    run = staged(*given, model=model, parts=parts)
    with pytest.raises(ConfigError, match=r"stages\.1\.schedule: StepLR of torch cannot go on"):
        fit(run)
    assert run.step == 0


def test_a_rehearsal_changes_nothing() -> None:
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
