"""Tests of building schedules, through the runs that they make."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import torch
from torch.optim import lr_scheduler

import epochal as ep
from epochal.components.schedules import Cosine, Linear
from epochal.engine import TorchSchedule, Warmup
from epochal.testing import TinyModel, TinyTask

if TYPE_CHECKING:
    from epochal.engine import Run


def rates(schedule: Any, *, length: str = "2ep", **sections: Any) -> list[float]:
    """The rate that each step of a training of six steps an epoch is taken with."""
    used: list[float] = []

    def watch(run: Run) -> None:
        run.on("epoch_start", lambda run: used.append(run.learning_rates["lr"]), priority=1)
        run.on("step_end", lambda run: used.append(run.learning_rates["lr"]))

    sections = {"optim": {"type": "SGD", "lr": 1.0}, **sections}
    result = ep.Experiment(
        task=TinyTask(),
        model=sections.pop("model", None) or TinyModel(),
        schedule=schedule,
        train={"for": length, "eval_every": 0},
        log={"console_every": 0},
        choices={"device": "cpu", "no_file": True, "raise_errors": True},
        hooks=[watch],
        **sections,
    ).fit()
    assert result.ok, result.traceback
    per_epoch = 7  # one more before the first step of each epoch
    return [one for index, one in enumerate(used) if index % per_epoch != per_epoch - 1]


OURS = {
    "constant": {},
    "linear": {},
    "cosine": {"restarts": 1, "growth": 2, "peak_decay": 0.5},
    "polynomial": {"power": 2},
    "step": {"every": "1ep"},
    "multi_step": {"milestones": [4, "1ep"]},
    "exponential": {"gamma": 0.5, "every": "1ep"},
    "one_cycle": {},
    "inverse_sqrt": {"timescale": "1ep"},
    "noam": {"model_size": 64},
    "wsd": {"decay": "2st", "shape": "sqrt"},
}


def test_every_schedule_has_its_name_and_takes_a_warmup() -> None:
    for name, options in OURS.items():
        warm = rates({"type": name, "warmup": "3st", "warmup_start": 0.1, **options})
        assert len(warm) == 12, name
        assert warm[0] < warm[1] < warm[2], name
        if name != "noam":
            assert warm[0] == pytest.approx(0.1 * warm[3]), name


def test_every_schedule_may_change_between_epochs_only() -> None:
    for name, options in OURS.items():
        warmup = {"warmup": "1st"} if name == "noam" else {}
        found = rates({"type": name, "unit": "epoch", **options, **warmup})
        assert [len(set(found[:6])), len(set(found[6:]))] == [1, 1], name


def test_a_warmup_precedes_schedulers_of_torch() -> None:
    found = rates({"type": "StepLR", "step_size": 2, "gamma": 0.5, "warmup": 4, "warmup_start": 0})
    assert found == [0, 0.25, 0.5, 0.75, 1, 1, 0.5, 0.5, 0.25, 0.25, 0.125, 0.125]


def test_a_warmup_in_epochs_precedes_a_plateau() -> None:
    spec = {"type": "plateau", "patience": 0, "warmup": "1ep", "warmup_start": 0.4}
    found = rates(spec, monitor="-train/loss")
    assert found[:6] == pytest.approx([0.4, 0.5, 0.6, 0.7, 0.8, 0.9])
    assert found[6:] == [1.0] * 6


def test_an_unknown_name_suggests_the_closest_one() -> None:
    with pytest.raises(ep.ConfigError, match=r"unknown schedule 'cosin'\n(.|\n)*'cosine'"):
        rates({"type": "cosin"})


def test_schedules_may_be_objects_with_a_warmup() -> None:
    found = rates(Warmup(Linear(), "1ep", start=0.0))
    assert found == pytest.approx([step / 6 for step in (0, 1, 2, 3, 4, 5, 6, 5, 4, 3, 2, 1)])


def test_a_scheduler_of_another_optimizer_is_refused() -> None:
    model = TinyModel()
    mine, other = (torch.optim.SGD(model.parameters(), lr=1.0) for _ in range(2))
    falling = lr_scheduler.StepLR(other, 3)
    for schedule in (falling, TorchSchedule(falling), Warmup(falling, 2)):
        for optim in (mine, {"type": "SGD", "lr": 1.0}):
            with pytest.raises(
                ep.ConfigError, match="StepLR was built with another optimizer"
            ) as e:
                rates(schedule, model=model, optim=optim)
            assert "schedule={'type': 'StepLR', ...}" in str(e.value)


TORCH: list[Any] = [
    lambda one: lr_scheduler.LambdaLR(one, lambda step: 1 / (1 + step)),
    lambda one: lr_scheduler.SequentialLR(
        one,
        [
            lr_scheduler.LinearLR(one, start_factor=0.1, total_iters=4),
            lr_scheduler.CosineAnnealingLR(one, 8),
        ],
        milestones=[4],
    ),
    lambda one: lr_scheduler.ChainedScheduler(
        [lr_scheduler.ConstantLR(one, 0.5), lr_scheduler.ExponentialLR(one, 0.8)]
    ),
    lambda one: lr_scheduler.OneCycleLR(one, 0.5, total_steps=12),
    lambda one: lr_scheduler.CosineAnnealingWarmRestarts(one, 3, 2),
]


@pytest.mark.parametrize("unit", ["step", "epoch"])
def test_a_training_equals_a_hand_written_loop_with_the_scheduler_of_torch(unit: str) -> None:
    for make in TORCH:
        compare_with_loop(make, unit)


def compare_with_loop(make: Any, unit: str) -> None:
    def parts() -> tuple[torch.nn.Module, torch.optim.Optimizer]:
        torch.manual_seed(3)
        model = TinyModel(dropout=0.0)  # else the loop would need the same masks
        return model, torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)

    batches: list[Any] = []

    class Noting(TinyTask):
        def batch_forward(self, model: Any, batch: Any) -> Any:
            batches.append({name: value.clone() for name, value in batch.items()})
            return super().batch_forward(model, batch)

    ours, optimizer = parts()
    ep.Experiment(
        task=Noting(),
        model=ours,
        optim=optimizer,
        schedule=TorchSchedule(make(optimizer), unit=unit),
        train={"for": "2ep", "eval_every": 0, "sanity_batches": 0},
        log={"console_every": 0},
        choices={"device": "cpu", "no_file": True, "raise_errors": True},
    ).fit()

    theirs, optimizer = parts()
    scheduler, task = make(optimizer), TinyTask()
    for index, batch in enumerate(batches):
        loss, _ = task.batch_loss(task.batch_forward(theirs, batch), batch)["loss"]
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if unit == "step" or index % 6 == 5:
            scheduler.step()
    assert len(batches) == 12
    for name, value in theirs.state_dict().items():
        assert torch.equal(value, ours.state_dict()[name]), name


def test_cosine_may_be_given_as_an_object_and_by_name_with_the_same_rates() -> None:
    assert rates(Cosine(min_factor=0.1)) == rates({"type": "cosine", "min_factor": 0.1})
