"""Tests of the interfaces of schedules."""

from __future__ import annotations

import pytest
import torch

from epochal.engine import Schedule, TorchSchedule
from epochal.errors import ConfigError


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
