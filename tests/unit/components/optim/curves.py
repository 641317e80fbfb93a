"""Curves of our schedules and of torch's."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from torch.optim.lr_scheduler import LRScheduler

    from epochal.engine.interfaces.schedule import Schedule


def curve(schedule: Schedule, total: int | None, steps: int) -> list[float]:
    return [schedule.factor(step, total) for step in range(steps)]


def torch_curve(make: type[LRScheduler], steps: int, **arguments: object) -> list[float]:
    optimizer = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=1.0, momentum=0.9)
    scheduler = make(optimizer, **arguments)
    rates = []
    for _ in range(steps):
        rates.append(optimizer.param_groups[0]["lr"])
        optimizer.step()
        scheduler.step()
    return rates
