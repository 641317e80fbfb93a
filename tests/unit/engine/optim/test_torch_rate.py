"""Tests of learning rates that a scheduler of torch decides."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch.optim import lr_scheduler

from engine.parts import Sums, adder, fit, make_run
from epochal.engine import Monitor, TorchSchedule
from epochal.engine.optim.build_rate import build_rate
from epochal.engine.optim.rate import read_rates
from epochal.errors import ConfigError


def sgd() -> torch.optim.Optimizer:
    model = adder()
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
    optimizer.model = model
    return optimizer


def rates_by_plateau(monitor: str, values: list[float], **options: Any) -> dict[str, float]:
    """The rates after evaluations that came to these values."""
    optimizer = sgd()
    plateau = lr_scheduler.ReduceLROnPlateau(optimizer, factor=0.5, patience=0, **options)
    parts = {
        "optimizer": optimizer,
        "schedule": TorchSchedule(plateau),
        "monitor": Monitor.parse(monitor),
    }
    task, left = Sums(8), iter(values)
    task.epoch_metric = lambda split: {"x": next(left)}
    fit(make_run(task, optimizer.model, parts=parts, for_=f"{len(values)}ep", sanity_batches=0))
    return read_rates(optimizer)


def test_a_plateau_follows_the_direction_of_the_monitor() -> None:
    rising = [0.1, 0.2, 0.4, 0.8]
    table: list[tuple[str, list[float], dict[str, Any], float]] = [
        ("+val/x", rising, {}, 1.0),
        ("-val/x", rising[::-1], {}, 1.0),
        ("+val/x", rising, {"threshold_mode": "abs"}, 1.0),
        ("-val/x", rising[::-1], {"threshold_mode": "abs"}, 1.0),
        ("+val/x", [1.0] * 4, {}, 0.125),
        ("-val/x", [1.0] * 4, {}, 0.125),
        ("+val/x", [1.0, 2.0, 1.5], {"mode": "max"}, 0.5),
    ]
    for monitor, values, options, rate in table:
        found = rates_by_plateau(monitor, values, **options)
        assert found == {"lr": rate}, (monitor, values, options)


def test_a_plateau_that_contradicts_the_monitor_is_refused() -> None:
    what = r"schedule.mode: mode 'max' contradicts monitor '-val/x'"
    with pytest.raises(ConfigError, match=what):
        rates_by_plateau("-val/x", [1.0], mode="max")


def test_a_plateau_without_a_monitor_is_refused_before_the_first_step() -> None:
    optimizer = sgd()
    schedule = TorchSchedule(lr_scheduler.ReduceLROnPlateau(optimizer))
    with pytest.raises(ConfigError, match=r"schedule: ReduceLROnPlateau needs a monitored metric"):
        build_rate(schedule, optimizer, step=0, total_steps=None)


@pytest.mark.parametrize(("val", "eval_every"), [(0, "1ep"), (6, "1ep"), (6, "1st"), (6, 0)])
def test_a_plateau_of_a_training_metric_moves_by_epochs(val: int, eval_every: object) -> None:
    optimizer = sgd()
    plateau = lr_scheduler.ReduceLROnPlateau(optimizer, factor=0.5, patience=0)
    values: list[float] = []
    advance = plateau.step
    plateau.step = lambda value: (values.append(value), advance(value))

    class Flat(Sums):
        def batch_loss(self, out: Any, batch: Any) -> Any:
            return {"loss": (out["sum"].mean() * 0 + 1, len(batch[1]))}

    parts = {
        "optimizer": optimizer,
        "schedule": TorchSchedule(plateau),
        "monitor": Monitor.parse("-train/loss"),
    }
    task = Flat(8, val=val)
    fit(make_run(task, optimizer.model, parts=parts, for_="4ep", eval_every=eval_every))
    assert values == [1.0] * 4
    assert read_rates(optimizer) == {"lr": 0.125}


def test_a_plateau_does_not_count_the_evaluation_before_the_first_step() -> None:
    optimizer = sgd()
    plateau = lr_scheduler.ReduceLROnPlateau(optimizer, patience=0)
    parts = {
        "optimizer": optimizer,
        "schedule": TorchSchedule(plateau),
        "monitor": Monitor.parse("-val/mae"),
    }
    fit(make_run(Sums(8), optimizer.model, parts=parts, for_="1ep", eval_at_start=True))
    assert plateau.last_epoch == 1


def test_a_scheduler_that_fails_is_named() -> None:
    optimizer = sgd()
    broken = lr_scheduler.StepLR(optimizer, step_size=1)
    broken.step_size = 0
    parts = {"optimizer": optimizer, "schedule": TorchSchedule(broken)}
    with pytest.raises(ZeroDivisionError) as error:
        fit(make_run(Sums(8), optimizer.model, parts=parts, sanity_batches=0))
    assert error.value.__notes__ == ["while the schedule StepLR chose the rate of the next step"]
