"""The rates of an optimizer's groups, the interface of their owner, and the schedulers of torch."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from functools import partial
from typing import TYPE_CHECKING, Any, final

import torch
from torch import Tensor
from torch.optim.lr_scheduler import ReduceLROnPlateau
from typing_extensions import override

from epochal.errors import ConfigError, Problem

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from torch.optim import Optimizer
    from torch.optim.lr_scheduler import LRScheduler

    from epochal.engine.interfaces.monitor import Monitor
    from epochal.engine.interfaces.schedule import TorchSchedule

    ParamGroup = dict[str, Any]  # torch's own: options by name


@final
class GroupRates:
    """The rate of each group; a tensor is written when its rate changes, and not read."""

    def __init__(self, optimizer: Optimizer | None = None) -> None:
        self._optimizer = optimizer
        self._tensors: list[Tensor | None] = []
        self._versions: list[int] = []  # counts the writes to each, without reading the device
        self.values: list[float] = []
        """The rate of each group."""

        self.used_at: tuple[int, list[float]] = (-1, [])
        """The last update after which rates may have changed, and the rates that it used."""

        self.adopt()

    @property
    def groups(self) -> list[ParamGroup]:
        """The groups as they are now."""
        return [] if self._optimizer is None else self._optimizer.param_groups

    def adopt(self) -> None:
        """Read rates that users wrote into groups, and put tensors back that they replaced."""
        for index, group in enumerate(self.groups):
            rate: float | Tensor = group["lr"]
            if index == len(self.values):
                self.values.append(read_rate(rate))
                self._tensors.append(rate if isinstance(rate, Tensor) else None)
                self._versions.append(rate._version if isinstance(rate, Tensor) else 0)
                continue
            tensor = self._tensors[index]
            if tensor is None or rate is not tensor:
                self.set_rate(index, read_rate(rate))
            elif tensor._version != self._versions[index]:
                self.set_rate(index, read_rate(tensor, self.values[index]))

    def keep_used(self, step: int) -> None:
        """Keep the rates of the update ``step`` before they change; may be called repeatedly."""
        if step != self.used_at[0]:
            self.used_at = step, list(self.values)

    def get_used(self, step: int) -> list[float]:
        """The rates of the update ``step``, the latest one."""
        return self.used_at[1] if step == self.used_at[0] else self.values

    def set_rate(self, index: int, value: float) -> None:
        """Set the rate of a group, in its tensor if it has one."""
        group, tensor = self.groups[index], self._tensors[index]
        if tensor is None:
            group["lr"] = value
        else:
            if value != self.values[index]:
                tensor.fill_(value)
            self._versions[index] = tensor._version
            group["lr"] = tensor
        self.values[index] = value

    def load(self, values: Sequence[float]) -> None:
        """Set rates of a checkpoint, whose optimizer has been restored already."""
        self._tensors = [
            group["lr"] if isinstance(group["lr"], Tensor) else None for group in self.groups
        ]
        self._versions = [0 if one is None else one._version for one in self._tensors]
        self.values = list(values)
        self.used_at = (-1, [])

    def step_scheduler(self, advance: Callable[[], object]) -> None:
        """Let a scheduler of torch compute with plain floats, which reads no device."""
        self.adopt()
        for group, value in zip(self.groups, self.values, strict=True):
            group["lr"] = value
        try:
            advance()
        finally:
            self.adopt()


def name_rates(optimizer: Optimizer | None, rates: Sequence[float]) -> dict[str, float]:
    """Rates by the names of their groups, as in ``read_rates``."""
    groups = [] if optimizer is None else optimizer.param_groups
    return {
        _name(group, index, len(groups)): rate
        for index, (group, rate) in enumerate(zip(groups, rates, strict=False))
    }


def _name(group: ParamGroup, index: int, count: int) -> str:
    return "lr" if count == 1 else f"lr/{group.get('name', index)}"


def read_rates(optimizer: Optimizer | None, known: Sequence[float] = ()) -> dict[str, float]:
    """The rate as ``lr``; with several groups ``lr/<name or index>`` for each.

    Tensors whose rates are ``known`` to their owner are not read.
    """
    groups = [] if optimizer is None else optimizer.param_groups
    rates = {}
    for index, group in enumerate(groups):
        name = _name(group, index, len(groups))
        is_known = isinstance(group["lr"], Tensor) and index < len(known)
        rates[name] = known[index] if is_known else read_rate(group["lr"])
    return rates


def read_rate(rate: float | Tensor, known: float | None = None) -> float:
    """A rate as a float; of a narrow tensor the known value, or the shortest decimal that fits."""
    value = float(rate)
    if not isinstance(rate, Tensor) or rate.dtype == torch.float64:
        return value
    likely = [float(f"{value:.{digits}g}") for digits in range(1, 10)]
    for one in likely if known is None else [known, *likely]:
        if torch.tensor(one, dtype=rate.dtype).item() == value:
            return one
    return value


class Rate(ABC):
    """Owns the learning rates of an optimizer, and changes them when the schedule says so."""

    is_moved_by_steps: bool = False
    """Whether ``after_step`` does anything."""

    rates: GroupRates
    """The rates; nothing else in the engine sets them."""

    @property
    def values(self) -> list[float]:
        """The rate of each group; reads no device."""
        return self.rates.values

    def adopt(self) -> None:
        """Take over rates that users wrote into groups; called after code of users ran."""
        self.rates.adopt()

    def keep_used(self, step: int) -> None:
        """Keep the rates of the update ``step``; called before anything may change them."""
        self.rates.keep_used(step)

    def get_used(self, step: int) -> list[float]:
        """The rate of each group in the update ``step``, the latest one."""
        return self.rates.get_used(step)

    def after_step(self, step: int) -> None:  # noqa: B027 - most do nothing then
        """Called after each update; ``step`` counts it."""

    def after_epoch(self, step: int) -> None:  # noqa: B027 - most do nothing then
        """Called after each complete epoch."""

    def after_eval(self, step: int) -> None:  # noqa: B027 - most do nothing then
        """Called after each evaluation of ``val`` that follows an update."""

    def after_value(self, value: float, step: int) -> None:  # noqa: B027 - most do nothing then
        """Called with each new value of the monitored metric that follows an update."""

    def admit(self) -> None:
        """Called before an update after the optimizer got new parameters."""
        self.adopt()

    def state_dict(self) -> dict[str, Any]:
        """What a checkpoint keeps; the groups of the optimizer are kept with it."""
        return {"values": list(self.values), "used": self.used_state(), "own": self.own_state()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from a checkpoint whose optimizer was restored before."""
        self.load_values(state["values"])
        self.load_used_state(state.get("used", []))
        self.load_own_state(state["own"])

    def used_state(self) -> list[Any]:
        """What ``get_used`` needs after a resume."""
        return [list(self.rates.used_at)]

    def load_used_state(self, state: Sequence[Any]) -> None:
        """Restore what ``used_state`` returned."""
        for step, values in state:
            if len(values) == len(self.values):
                self.rates.used_at = step, list(values)

    def load_values(self, values: Sequence[float]) -> None:
        """Set the rates of a checkpoint."""
        self.rates.load(values)

    @abstractmethod
    def own_state(self) -> dict[str, Any]:
        """Its state without the rates."""

    @abstractmethod
    def load_own_state(self, state: dict[str, Any]) -> None:
        """Restore what ``own_state`` returned."""


@final
class FixedRate(Rate):
    """Rates that stay as the optimizer was built, or as users set them."""

    def __init__(self, optimizer: Optimizer | None = None) -> None:
        self.rates = GroupRates(optimizer)

    @override
    def own_state(self) -> dict[str, Any]:
        return {}

    @override
    def load_own_state(self, state: dict[str, Any]) -> None:
        pass


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
