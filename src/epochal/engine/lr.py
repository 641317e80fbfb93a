"""The one owner of the learning rate while a run trains."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, final

from torch import Tensor
from torch.optim.lr_scheduler import ReduceLROnPlateau
from typing_extensions import override

from epochal.engine.schedule import Schedule, TorchSchedule
from epochal.errors import ConfigError, Problem

if TYPE_CHECKING:
    from torch.optim import Optimizer

    from epochal.engine.monitor import Monitor


class Rate(ABC):
    """What moves the learning rate on, at the moments at which it may move."""

    @abstractmethod
    def after_step(self, step: int) -> None:
        """Called after each update; ``step`` counts it."""

    @abstractmethod
    def after_epoch(self) -> None:
        """Called after each complete epoch."""

    @abstractmethod
    def after_eval(self) -> None:
        """Called after each evaluation of ``val`` that follows an update."""

    @abstractmethod
    def after_value(self, value: float) -> None:
        """Called with each new value of the monitored metric that follows an update."""

    @abstractmethod
    def admit(self) -> None:
        """Called before an update when the optimizer got parameters it did not have before."""


@final
class FixedRate(Rate):
    """Rates stay what the optimizer was built with."""

    @override
    def after_step(self, step: int) -> None:
        pass

    @override
    def after_epoch(self) -> None:
        pass

    @override
    def after_eval(self) -> None:
        pass

    @override
    def after_value(self, value: float) -> None:
        pass

    @override
    def admit(self) -> None:
        pass


@final
class FactorRate(Rate):
    """The base rate of every group, times the factor of a schedule."""

    def __init__(
        self, schedule: Schedule, optimizer: Optimizer, *, step: int, total_steps: int | None
    ) -> None:
        self._schedule = schedule
        self._optimizer = optimizer
        self._total_steps = total_steps
        self._factor = 1.0
        self.after_step(step)

    @override
    def after_step(self, step: int) -> None:
        self._factor = self._schedule.factor(step, self._total_steps)
        self.admit()

    @override
    def admit(self) -> None:
        for group in self._optimizer.param_groups:
            if "initial_lr" not in group:
                # torch's own name for it, so that a loaded optimizer keeps its base rate.
                group["initial_lr"] = float(group["lr"])
            _set_rate(group, group["initial_lr"] * self._factor)

    @override
    def after_epoch(self) -> None:
        pass

    @override
    def after_eval(self) -> None:
        pass

    @override
    def after_value(self, value: float) -> None:
        pass


@final
class TorchRate(Rate):
    """What one of torch's schedulers says, asked once per unit."""

    def __init__(self, schedule: TorchSchedule) -> None:
        self._schedule = schedule

    @override
    def after_step(self, step: int) -> None:
        self._advance("step")

    @override
    def after_epoch(self) -> None:
        self._advance("epoch")

    @override
    def after_eval(self) -> None:
        self._advance("eval")

    @override
    def after_value(self, value: float) -> None:
        pass

    @override
    def admit(self) -> None:
        scheduler = self._schedule.scheduler
        known: list[float | Tensor] = getattr(scheduler, "base_lrs", [])
        for group in scheduler.optimizer.param_groups[len(known) :]:
            known.append(group.setdefault("initial_lr", group["lr"]))

    def _advance(self, unit: str) -> None:
        if self._schedule.unit == unit:
            self._schedule.scheduler.step()


@final
class PlateauRate(Rate):
    """What ``ReduceLROnPlateau`` says of the monitored value, by the direction of the monitor."""

    def __init__(self, schedule: TorchSchedule, monitor: Monitor | None) -> None:
        if monitor is None:
            what = "ReduceLROnPlateau needs a monitored metric"
            hint = "write for example monitor: -val/loss"
            raise ConfigError(Problem("schedule", what, hint=hint))
        assert isinstance(schedule.scheduler, ReduceLROnPlateau)
        self._scheduler = schedule.scheduler
        _turn(self._scheduler, monitor)

    @override
    def after_step(self, step: int) -> None:
        pass

    @override
    def after_epoch(self) -> None:
        pass

    @override
    def after_eval(self) -> None:
        pass

    @override
    def after_value(self, value: float) -> None:
        self._scheduler.step(value)

    @override
    def admit(self) -> None:
        pass  # the scheduler looks at the groups itself


def build_rate(
    schedule: Schedule | TorchSchedule | None,
    optimizer: Optimizer,
    *,
    step: int,
    total_steps: int | None,
    monitor: Monitor | None = None,
) -> Rate:
    """The owner of the rate for a schedule, positioned after ``step`` updates.

    Raises:
        ConfigError: The schedule goes by a monitored value, and there is none, or it was told
            that larger is better while the monitor says that smaller is.
    """
    if schedule is None:
        return FixedRate()
    if isinstance(schedule, TorchSchedule):
        needs_value = schedule.needs_value
        return PlateauRate(schedule, monitor) if needs_value else TorchRate(schedule)
    return FactorRate(schedule, optimizer, step=step, total_steps=total_steps)


def read_rates(optimizer: Optimizer | None) -> dict[str, float]:
    """The rate as ``lr``; with several groups ``lr/<name or index>`` for each."""
    groups = [] if optimizer is None else optimizer.param_groups
    if len(groups) == 1:
        return {"lr": float(groups[0]["lr"])}
    return {
        f"lr/{group.get('name', index)}": float(group["lr"]) for index, group in enumerate(groups)
    }


def _set_rate(group: dict[str, object], rate: float) -> None:
    current = group["lr"]
    if isinstance(current, Tensor):
        current.fill_(rate)
    else:
        group["lr"] = rate


def _turn(scheduler: ReduceLROnPlateau, monitor: Monitor) -> None:
    """Have a scheduler look for what the monitor calls better.

    Its ``mode`` is ``min`` unless somebody chose, so only ``max`` can contradict a monitor.
    Negated values would not do: its threshold is a share of the best value.
    """
    if scheduler.mode == monitor.mode:
        return
    if scheduler.mode == "max":
        what = f"mode 'max' contradicts monitor {str(monitor)!r}, for which smaller is better"
        hint = "remove schedule.mode: it follows the monitor"
        raise ConfigError(Problem("schedule.mode", what, hint=hint))
    scheduler.mode = "max"
    scheduler.mode_worse = scheduler.best = -math.inf
