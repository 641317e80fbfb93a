"""Tests of the interfaces of schedules."""

from __future__ import annotations

import pytest
import torch

from epochal.config import parse_duration
from epochal.engine import Schedule, TorchSchedule, Warmup
from epochal.engine.interfaces.schedule import ScheduleLength
from epochal.errors import ConfigError


class Flat(Schedule):
    def factor(self, step: int, total_steps: int | None) -> float:
        return 1.0


def optimizer() -> torch.optim.Optimizer:
    return torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=1.0)


def test_the_interface_cannot_be_instantiated() -> None:
    with pytest.raises(TypeError, match="abstract"):
        Schedule()


def test_an_unknown_unit_suggests_the_closest_one() -> None:
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer(), 1)
    with pytest.raises(ConfigError, match=r"schedule.unit: unknown unit 'steps'\n  did you mean"):
        TorchSchedule(scheduler, unit="steps")


def test_a_plateau_always_steps_after_evaluations() -> None:
    plateau = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer())
    schedule = TorchSchedule(plateau, unit="step")
    assert schedule.unit == "eval"
    assert schedule.needs_value


def test_a_warmup_accepts_any_torch_scheduler() -> None:
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer(), 1)
    warmup = Warmup(scheduler, "1ep")
    assert isinstance(warmup.schedule, TorchSchedule)
    assert warmup.schedule.unit == "step"
    assert warmup.length.steps(7) == 7


def test_a_length_is_in_steps_or_epochs() -> None:
    for length in ("20st", parse_duration("20st"), 20):
        assert ScheduleLength("over", length).steps(None) == 20
    assert ScheduleLength("over", "3ep").steps(5) == 15
    message = r"over: cannot be '3ep': the number of steps per epoch is unknown\n.*over: 500st"
    with pytest.raises(ConfigError, match=message):
        ScheduleLength("over", "3ep").steps(None)


def test_invalid_lengths_and_starts_are_refused() -> None:
    table = [
        (lambda: Warmup(Flat(), -1), r"schedule\.warmup: must not be negative, got -1"),
        (lambda: Warmup(Flat(), "2h"), r"schedule\.warmup: must be in steps or epochs, got '2h'"),
        (lambda: Warmup(Flat(), "soon"), r"schedule\.warmup: .*'soon'"),
        (lambda: Warmup(Flat(), 1, start=-0.1), r"warmup_start: must be between 0 and 1, got -0.1"),
        (lambda: ScheduleLength("over", 0, least=1), r"schedule\.over: must be at least 1, got 0"),
    ]
    for make, message in table:
        with pytest.raises(ConfigError, match=message):
            make()
