"""Tests of the rates of several optimizers with owners of their own."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.optim.lr_scheduler import ExponentialLR

from epochal.components.optim.schedules import Linear
from epochal.engine.joined_rate import JoinedRate
from epochal.engine.lr import build_rate
from epochal.engine.schedule import Schedules, TorchSchedule


def two() -> tuple[torch.optim.Optimizer, torch.optim.Optimizer]:
    a, b = nn.Linear(1, 1), nn.Linear(1, 1)
    groups = [{"params": [b.weight], "lr": 1}, {"params": [b.bias], "lr": 2}]
    return torch.optim.SGD(a.parameters(), lr=0.5), torch.optim.SGD(groups)


def joined(step: int = 0) -> JoinedRate:
    one, other = two()
    schedules = Schedules(
        {
            "one": (one, Linear()),
            "other": (other, TorchSchedule(ExponentialLR(other, 0.1), unit="epoch")),
        }
    )
    other.step()
    rate = build_rate(schedules, one, step=step, total_steps=10)
    assert isinstance(rate, JoinedRate)
    return rate


def test_each_rate_moves_in_its_own_way() -> None:
    rate = joined()
    assert rate.is_moved_by_steps
    assert rate.values == [0.5, 1, 2]
    rate.after_step(5)
    assert rate.values == [0.25, 1, 2]
    rate.after_epoch(5)
    assert rate.values == pytest.approx([0.25, 0.1, 0.2])
    rate.after_eval(5)
    rate.after_value(1.0, 5)
    assert rate.values == pytest.approx([0.25, 0.1, 0.2])


def test_rates_that_somebody_gave_to_groups_are_adopted() -> None:
    rate = joined()
    rate.rates.groups[1]["lr"] = 7.0
    rate.adopt()
    assert rate.values == [0.5, 7.0, 2]
    rate.rates.put(2, 3.0)
    rate.rates.put(0, 4.0)
    assert rate.values == [4.0, 7.0, 3.0]
    rate.admit()
    assert rate.values[1:] == [7.0, 3.0]


def test_a_checkpoint_goes_on_where_each_was() -> None:
    rate = joined()
    rate.after_step(5)
    rate.after_epoch(5)
    state = rate.state_dict()
    again = joined(5)
    for group, value in zip(again.rates.groups, rate.values, strict=True):
        group["lr"] = value  # the groups come back with the optimizer
    again.load_state_dict(state)
    assert again.values == rate.values
    again.after_epoch(10)
    rate.after_epoch(10)
    assert again.values == rate.values


def test_nothing_moves_by_steps_where_no_member_does() -> None:
    one, other = two()
    schedules = Schedules({"one": (one, None), "other": (other, None)})
    rate = build_rate(schedules, one, step=0, total_steps=None)
    assert not rate.is_moved_by_steps
    assert rate.values == [0.5, 1, 2]
