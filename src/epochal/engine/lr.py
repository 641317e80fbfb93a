"""The one owner of the learning rate while a run trains."""

from __future__ import annotations

import math
from functools import partial
from typing import TYPE_CHECKING, Any, final

import torch
from torch import Tensor
from torch.optim.lr_scheduler import ReduceLROnPlateau
from typing_extensions import override

from epochal.engine.schedule import Schedule, TorchSchedule
from epochal.errors import ConfigError, Problem

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from torch.optim import Optimizer
    from torch.optim.lr_scheduler import LRScheduler

    from epochal.engine.monitor import Monitor

    Group = dict[str, Any]  # torch's own: options by name


class Rate:
    """What moves the learning rate on, at the moments at which it may move.

    It knows the rates as plain floats. Where an optimizer wants a tensor, that tensor is
    written when the rate changes and never read again.

    Args:
        optimizer: Whose groups it owns the rates of.
    """

    is_moved_by_steps: bool = False
    """Whether ``after_step`` does anything."""

    def __init__(self, optimizer: Optimizer | None = None) -> None:
        self._optimizer = optimizer
        self._tensors: list[Tensor | None] = []
        self._versions: list[int] = []  # how often each was written to, which the host knows
        self.values: list[float] = []
        """The rate of each group."""

        self.adopt()

    def after_step(self, step: int) -> None:
        """Called after each update; ``step`` counts it."""

    def after_epoch(self) -> None:
        """Called after each complete epoch."""

    def after_eval(self) -> None:
        """Called after each evaluation of ``val`` that follows an update."""

    def after_value(self, value: float) -> None:
        """Called with each new value of the monitored metric that follows an update."""

    def admit(self) -> None:
        """Called before an update when the optimizer got parameters it did not have before."""
        self.adopt()

    def adopt(self) -> None:
        """Take over the rates that somebody else gave to groups, and give tensors back."""
        for index, group in enumerate(self._groups()):
            rate: float | Tensor = group["lr"]
            if index == len(self.values):
                self.values.append(_read(rate))
                self._tensors.append(rate if isinstance(rate, Tensor) else None)
                self._versions.append(rate._version if isinstance(rate, Tensor) else 0)
                continue
            tensor = self._tensors[index]
            if tensor is None or rate is not tensor:
                self._put(index, group, _read(rate))
            elif tensor._version != self._versions[index]:
                self._put(index, group, _read(tensor, self.values[index]))

    def _put(self, index: int, group: Group, value: float) -> None:
        """Give a group its rate, where it wants it."""
        tensor = self._tensors[index]
        if tensor is None:
            group["lr"] = value
        else:
            if value != self.values[index]:
                tensor.fill_(value)
            self._versions[index] = tensor._version
            group["lr"] = tensor
        self.values[index] = value

    def _consult(self, advance: Callable[[], object]) -> None:
        """Have a scheduler of torch reckon with plain floats, which reads no device."""
        self.adopt()
        for group, value in zip(self._groups(), self.values, strict=True):
            group["lr"] = value
        try:
            advance()
        finally:
            self.adopt()

    def _groups(self) -> list[Group]:
        return [] if self._optimizer is None else self._optimizer.param_groups


@final
class FixedRate(Rate):
    """Rates stay what the optimizer was built with, or what somebody made of them."""


@final
class FactorRate(Rate):
    """The base rate of every group, times the factor of a schedule."""

    is_moved_by_steps = True

    def __init__(
        self, schedule: Schedule, optimizer: Optimizer, *, step: int, total_steps: int | None
    ) -> None:
        super().__init__(optimizer)
        self._schedule = schedule
        self._total_steps = total_steps
        self._factor = 1.0
        self.after_step(step)

    @override
    def after_step(self, step: int) -> None:
        self._factor = self._schedule.factor(step, self._total_steps)
        self._apply()

    @override
    def admit(self) -> None:
        self.adopt()
        self._apply()

    def _apply(self) -> None:
        for index, group in enumerate(self._groups()[: len(self.values)]):
            # torch's own name for it, so that a loaded optimizer keeps its base rate.
            base = group.get("initial_lr")
            if base is None or isinstance(base, Tensor):
                base = group["initial_lr"] = self.values[index] if base is None else _read(base)
            self._put(index, group, base * self._factor)


@final
class TorchRate(Rate):
    """What one of torch's schedulers says, asked once per unit."""

    def __init__(self, schedule: TorchSchedule) -> None:
        super().__init__(schedule.scheduler.optimizer)
        self._schedule = schedule
        self.is_moved_by_steps = schedule.unit == "step"
        _let_go_of_tensors(schedule.scheduler)

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
    def admit(self) -> None:
        self.adopt()
        known: list[float] = getattr(self._schedule.scheduler, "base_lrs", [])
        for index in range(len(known), len(self.values)):
            group = self._groups()[index]
            known.append(group.setdefault("initial_lr", self.values[index]))

    def _advance(self, unit: str) -> None:
        if self._schedule.unit == unit:
            self._consult(self._schedule.scheduler.step)


@final
class PlateauRate(Rate):
    """What ``ReduceLROnPlateau`` says of the monitored value, by the direction of the monitor."""

    def __init__(self, schedule: TorchSchedule, monitor: Monitor | None) -> None:
        if monitor is None:
            what = "ReduceLROnPlateau needs a monitored metric"
            hint = "write for example monitor: -val/loss"
            raise ConfigError(Problem("schedule", what, hint=hint))
        assert isinstance(schedule.scheduler, ReduceLROnPlateau)
        super().__init__(schedule.scheduler.optimizer)
        self._scheduler = schedule.scheduler
        _turn(self._scheduler, monitor)

    @override
    def after_value(self, value: float) -> None:
        self._consult(partial(self._scheduler.step, value))


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
        return FixedRate(optimizer)
    if isinstance(schedule, TorchSchedule):
        needs_value = schedule.needs_value
        return PlateauRate(schedule, monitor) if needs_value else TorchRate(schedule)
    return FactorRate(schedule, optimizer, step=step, total_steps=total_steps)


def read_rates(optimizer: Optimizer | None, known: Sequence[float] = ()) -> dict[str, float]:
    """The rate as ``lr``; with several groups ``lr/<name or index>`` for each.

    Args:
        optimizer: Has the groups.
        known: What the owner of the rates knows of them, so that no tensor need be read.
    """
    groups = [] if optimizer is None else optimizer.param_groups
    rates = {}
    for index, group in enumerate(groups):
        name = "lr" if len(groups) == 1 else f"lr/{group.get('name', index)}"
        is_known = isinstance(group["lr"], Tensor) and index < len(known)
        rates[name] = known[index] if is_known else _read(group["lr"])
    return rates


def _read(rate: float | Tensor, known: float | None = None) -> float:
    """A rate as a float; of a narrow one what is known, or the shortest decimal, if it fits."""
    value = float(rate)
    if not isinstance(rate, Tensor) or rate.dtype == torch.float64:
        return value
    likely = [float(f"{value:.{digits}g}") for digits in range(1, 10)]
    for one in likely if known is None else [known, *likely]:
        if torch.tensor(one, dtype=rate.dtype).item() == value:
            return one
    return value


def _let_go_of_tensors(scheduler: LRScheduler) -> None:
    """Give a scheduler, and those it is made of, base rates that are plain floats."""
    for one in getattr(scheduler, "_schedulers", ()):
        _let_go_of_tensors(one)
    if hasattr(scheduler, "base_lrs"):
        scheduler.base_lrs = [_read(rate) for rate in scheduler.base_lrs]
    for group in scheduler.optimizer.param_groups:
        if isinstance(group.get("initial_lr"), Tensor):
            group["initial_lr"] = _read(group["initial_lr"])


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
