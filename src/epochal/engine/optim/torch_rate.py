"""Learning rates of the schedulers of torch."""

from __future__ import annotations

import math
from functools import partial
from typing import TYPE_CHECKING, Any, final

from torch import Tensor
from torch.optim.lr_scheduler import ReduceLROnPlateau
from typing_extensions import override

from epochal.engine.optim.group_rates import GroupRates, read_rate
from epochal.engine.optim.rate import Rate
from epochal.errors import ConfigError, Problem

if TYPE_CHECKING:
    from torch.optim.lr_scheduler import LRScheduler

    from epochal.engine.interfaces.monitor import Monitor
    from epochal.engine.interfaces.schedule import TorchSchedule


@final
class TorchRate(Rate):
    """The rates of a scheduler of torch, which is advanced once per unit."""

    def __init__(self, schedule: TorchSchedule) -> None:
        self.rates = GroupRates(schedule.scheduler.optimizer)
        self._schedule = schedule
        self.is_moved_by_steps = schedule.unit == "step"
        _use_float_base_lrs(schedule.scheduler)

    @override
    def after_step(self, step: int) -> None:
        self._advance("step")

    @override
    def after_epoch(self, step: int) -> None:
        self._advance("epoch")

    @override
    def after_eval(self, step: int) -> None:
        self._advance("eval")

    @override
    def admit(self) -> None:
        self.rates.adopt()
        known: list[float] = getattr(self._schedule.scheduler, "base_lrs", [])
        for index in range(len(known), len(self.values)):
            known.append(self.rates.groups[index].setdefault("initial_lr", self.values[index]))

    @override
    def own_state(self) -> dict[str, Any]:
        return {"scheduler": self._schedule.scheduler.state_dict()}

    @override
    def load_own_state(self, state: dict[str, Any]) -> None:
        _load_scheduler(self._schedule.scheduler, state)

    def _advance(self, unit: str) -> None:
        if self._schedule.unit != unit:
            return
        try:
            self.rates.step_scheduler(self._schedule.scheduler.step)
        except Exception as error:
            name = type(self._schedule.scheduler).__name__
            error.add_note(f"while the schedule {name} chose the rate of the next step")
            raise


@final
class PlateauRate(Rate):
    """The rates of ``ReduceLROnPlateau``, in the direction of the monitor."""

    def __init__(self, schedule: TorchSchedule, monitor: Monitor | None) -> None:
        if monitor is None:
            what = "ReduceLROnPlateau needs a monitored metric"
            hint = "write for example monitor: -val/loss"
            raise ConfigError(Problem("schedule", what, hint=hint))
        assert isinstance(schedule.scheduler, ReduceLROnPlateau)
        self.rates = GroupRates(schedule.scheduler.optimizer)
        self._scheduler = schedule.scheduler
        _set_mode(self._scheduler, monitor)

    @override
    def after_value(self, value: float, step: int) -> None:
        self.rates.step_scheduler(partial(self._scheduler.step, value))

    @override
    def admit(self) -> None:
        self.rates.adopt()  # the scheduler reads the groups itself

    @override
    def own_state(self) -> dict[str, Any]:
        return {"scheduler": self._scheduler.state_dict()}

    @override
    def load_own_state(self, state: dict[str, Any]) -> None:
        _load_scheduler(self._scheduler, state)


def _load_scheduler(scheduler: LRScheduler, state: dict[str, Any]) -> None:
    if "scheduler" in state:
        scheduler.load_state_dict(state["scheduler"])
    # Else torch would warn about a missing first step, if the run takes none here.
    optimizer: Any = scheduler.optimizer  # torch reads it, but does not declare it
    optimizer._opt_called = True


def _use_float_base_lrs(scheduler: LRScheduler) -> None:
    """Make the base rates of a scheduler, and of those in it, plain floats."""
    for one in getattr(scheduler, "_schedulers", ()):
        _use_float_base_lrs(one)
    if hasattr(scheduler, "base_lrs"):
        scheduler.base_lrs = [read_rate(rate) for rate in scheduler.base_lrs]
    for group in scheduler.optimizer.param_groups:
        if isinstance(group.get("initial_lr"), Tensor):
            group["initial_lr"] = read_rate(group["initial_lr"])


def _set_mode(scheduler: ReduceLROnPlateau, monitor: Monitor) -> None:
    """Give a scheduler the mode of the monitor.

    The default is ``min``, so only a mode ``max`` can contradict the monitor. Negated values would
    be wrong, since the threshold is a share of the best value.
    """
    if scheduler.mode == monitor.mode:
        return
    if scheduler.mode == "max":
        what = f"mode 'max' contradicts monitor {str(monitor)!r}, for which smaller is better"
        hint = "remove schedule.mode: it follows the monitor"
        raise ConfigError(Problem("schedule.mode", what, hint=hint))
    scheduler.mode = "max"
    scheduler.mode_worse = scheduler.best = -math.inf
