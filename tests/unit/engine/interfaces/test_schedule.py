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


def test_the_interface_itself_cannot_be_made() -> None:
    with pytest.raises(TypeError, match="abstract"):
        Schedule()


def test_an_unknown_unit_suggests_the_closest_one() -> None:
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer(), 1)
    with pytest.raises(ConfigError, match=r"schedule.unit: unknown unit 'steps'\n  did you mean"):
        TorchSchedule(scheduler, unit="steps")


def test_a_plateau_goes_by_evaluations_whatever_is_asked() -> None:
    plateau = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer())
    schedule = TorchSchedule(plateau, unit="step")
    assert schedule.unit == "eval"
    assert schedule.needs_value


def test_a_warmup_takes_any_scheduler_of_torch_as_it_is() -> None:
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer(), 1)
    warmup = Warmup(scheduler, "1ep")
    assert isinstance(warmup.schedule, TorchSchedule)
    assert warmup.schedule.unit == "step"
    assert warmup.length.steps(7) == 7


@pytest.mark.parametrize("length", ["20st", parse_duration("20st"), 20])
def test_a_length_is_a_number_or_a_duration_in_steps(length: object) -> None:
    assert ScheduleLength("over", length).steps(None) == 20


def test_a_length_in_epochs_depends_on_how_many_steps_they_have() -> None:
    assert ScheduleLength("over", "3ep").steps(5) == 15
    with pytest.raises(ConfigError, match=r"schedule\.over: cannot be '3ep'(.|\n)*over: 500st"):
        ScheduleLength("over", "3ep").steps(None)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Warmup(Flat(), -1), r"schedule\.warmup: must not be negative, got -1"),
        (lambda: Warmup(Flat(), "2h"), r"schedule\.warmup: must be in steps or epochs, got '2h'"),
        (lambda: Warmup(Flat(), "soon"), r"schedule\.warmup: .*'soon'"),
        (lambda: Warmup(Flat(), 1, start=-0.1), r"warmup_start: must be between 0 and 1, got -0.1"),
        (lambda: ScheduleLength("over", 0, least=1), r"schedule\.over: must be at least 1, got 0"),
    ],
)
def test_impossible_lengths_and_starts_are_named(make: object, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        make()
