"""Builds the object that sets the learning rate of a run from a schedule."""

from __future__ import annotations

import logging
from functools import partial
from typing import TYPE_CHECKING, Any, final

from torch import Tensor
from typing_extensions import override

from epochal.engine.interfaces.schedule import (
    OptimizerSchedules,
    Schedule,
    TorchSchedule,
    Warmup,
    check_unit,
)
from epochal.engine.optim.rate import FixedRate, GroupRates, PlateauRate, Rate, TorchRate, read_rate

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from torch.optim import Optimizer

    from epochal.engine.interfaces.monitor import Monitor
    from epochal.engine.interfaces.schedule import AnySchedule, OneSchedule


logger = logging.getLogger(__name__)


@final
class FactorRate(Rate):
    """The base rate of every group, times the factor of a schedule.

    The step ``offset`` is the schedule's step 0; ``total_steps``, if known, count from there.
    """

    def __init__(
        self,
        schedule: Schedule,
        optimizer: Optimizer,
        *,
        step: int,
        total_steps: int | None,
        offset: int = 0,
    ) -> None:
        self.rates = GroupRates(optimizer)
        self.is_moved_by_steps = schedule.unit == "step"
        self._schedule = schedule
        self._total_steps = total_steps
        self._offset = offset
        self._factor: float
        self._move(step)

    @override
    def after_step(self, step: int) -> None:
        if self.is_moved_by_steps:
            self._move(step)

    @override
    def after_epoch(self, step: int) -> None:
        if not self.is_moved_by_steps:
            self._move(step)

    @override
    def admit(self) -> None:
        self.rates.adopt()
        self._apply()

    @override
    def own_state(self) -> dict[str, Any]:
        return {"factor": self._factor}

    @override
    def load_own_state(self, state: dict[str, Any]) -> None:
        self._factor = state.get("factor", self._factor)

    def _move(self, step: int) -> None:
        self._factor = self._schedule.factor(step - self._offset, self._total_steps)
        self._apply()

    def _apply(self) -> None:
        groups = self.rates.groups
        for index, value in enumerate(self.rates.values):
            # The name that torch uses, so that a loaded optimizer keeps its base rate.
            base = groups[index].get("initial_lr")
            if base is None or isinstance(base, Tensor):
                base = groups[index]["initial_lr"] = value if base is None else read_rate(base)
            self.rates.set_rate(index, base * self._factor)


@final
class WarmupRate(Rate):
    """A linear warm-up to the first rates of another owner, which sets them afterwards.

    The factor of the follower's rates is ``start`` at the step ``first``, and 1 after ``steps``.
    """

    is_moved_by_steps = True

    def __init__(self, follower: Rate, *, step: int, first: int, steps: int, start: float) -> None:
        self.rates = follower.rates
        self._follower = follower
        self._first, self._steps, self._start = first, steps, start
        self._goal = list(follower.values)
        self._factor = 1.0
        self._climb(step)

    @override
    def after_step(self, step: int) -> None:
        if not self._is_over(step):
            self._climb(step)
        elif self._follower.is_moved_by_steps:
            self._follower.after_step(step)

    @override
    def after_epoch(self, step: int) -> None:
        if self._is_over(step):
            self._follower.after_epoch(step)

    @override
    def after_eval(self, step: int) -> None:
        if self._is_over(step):
            self._follower.after_eval(step)

    @override
    def after_value(self, value: float, step: int) -> None:
        if self._is_over(step):
            self._follower.after_value(value, step)

    @override
    def admit(self) -> None:
        if self._factor != 1:
            self._scale(1.0)
        self._follower.admit()
        self._goal = list(self.values)
        if self._factor != 1:
            self._scale(self._factor)

    @override
    def own_state(self) -> dict[str, Any]:
        follower = self._follower.own_state()
        return {"goal": list(self._goal), "warmth": self._factor, "follower": follower}

    @override
    def load_own_state(self, state: dict[str, Any]) -> None:
        self._goal = list(state.get("goal", self._goal))
        self._factor = state.get("warmth", self._factor)
        self._follower.load_own_state(state.get("follower", state))

    def _is_over(self, step: int) -> bool:
        """Whether the follower has made its first update."""
        return step > self._first + self._steps

    def _climb(self, step: int) -> None:
        done, steps = step - self._first, self._steps
        self._factor = 1.0 if done >= steps else self._start + (1 - self._start) * done / steps
        self._scale(self._factor)

    def _scale(self, factor: float) -> None:
        for index, goal in enumerate(self._goal):
            self.rates.set_rate(index, goal * factor)


@final
class MultiOptimizerRate(Rate):
    """The rates of several optimizers, each with its own owner."""

    def __init__(self, members: Mapping[str, Rate]) -> None:
        self._members = members
        self.is_moved_by_steps = any(member.is_moved_by_steps for member in members.values())

    @property
    @override
    def values(self) -> list[float]:
        return [value for member in self._members.values() for value in member.values]

    @override
    def adopt(self) -> None:
        for member in self._members.values():
            member.adopt()

    @override
    def keep_used(self, step: int) -> None:
        for member in self._members.values():
            member.keep_used(step)

    @override
    def get_used(self, step: int) -> list[float]:
        return [rate for member in self._members.values() for rate in member.get_used(step)]

    @override
    def used_state(self) -> list[Any]:
        return [one for member in self._members.values() for one in member.used_state()]

    @override
    def load_used_state(self, state: Sequence[Any]) -> None:
        for member, one in zip(self._members.values(), state, strict=False):
            member.load_used_state([one])

    @override
    def load_values(self, values: Sequence[float]) -> None:
        for member in self._members.values():
            count = len(member.rates.groups)
            member.load_values(values[:count])
            values = values[count:]

    @override
    def after_step(self, step: int) -> None:
        for member in self._members.values():
            if member.is_moved_by_steps:
                member.after_step(step)

    @override
    def after_epoch(self, step: int) -> None:
        for member in self._members.values():
            member.after_epoch(step)

    @override
    def after_eval(self, step: int) -> None:
        for member in self._members.values():
            member.after_eval(step)

    @override
    def after_value(self, value: float, step: int) -> None:
        for member in self._members.values():
            member.after_value(value, step)

    @override
    def admit(self) -> None:
        for member in self._members.values():
            member.admit()

    @override
    def own_state(self) -> dict[str, Any]:
        return {name: member.own_state() for name, member in self._members.items()}

    @override
    def load_own_state(self, state: dict[str, Any]) -> None:
        for name, member in self._members.items():
            if name in state:
                member.load_own_state(state[name])


def build_rate(
    schedule: AnySchedule | None,
    optimizer: Optimizer,
    *,
    step: int,
    total_steps: int | None,
    offset: int = 0,
    steps_per_epoch: int | None = None,
    monitor: Monitor | None = None,
) -> Rate:
    """The owner of the rate for a schedule, positioned after ``step`` updates of the run.

    The schedule holds for ``total_steps`` updates from the step ``offset`` on: those of the run, or
    of a stage. Without a schedule the rates stay as they are. A group's base rate is its
    ``initial_lr``, if it has one.
    """
    build = partial(
        _build_one,
        step=step,
        total_steps=total_steps,
        offset=offset,
        steps_per_epoch=steps_per_epoch,
        monitor=monitor,
    )
    if not isinstance(schedule, OptimizerSchedules):
        return build(schedule, optimizer)
    members = schedule.members.items()
    return MultiOptimizerRate({name: build(one, optimizer) for name, (optimizer, one) in members})


def warn_of_long_warmup(
    schedule: AnySchedule | None, total_steps: int | None, steps_per_epoch: int | None
) -> None:
    """Warn if a warm-up is longer than the training."""
    members: list[OneSchedule | None]
    if isinstance(schedule, OptimizerSchedules):
        members = [member for _, member in schedule.members.values()]
    else:
        members = [schedule]
    for one in members:
        steps = one.length.steps(steps_per_epoch) if isinstance(one, Warmup) else 0
        if total_steps is not None and steps >= total_steps > 0:
            text = "schedule.warmup: the warm-up takes %d steps, and the training only %d"
            logger.warning(text, steps, total_steps)


def _build_one(
    schedule: OneSchedule | None,
    optimizer: Optimizer,
    *,
    step: int,
    total_steps: int | None,
    offset: int,
    steps_per_epoch: int | None,
    monitor: Monitor | None,
) -> Rate:
    if schedule is None:
        return FixedRate(optimizer)
    warmup = schedule if isinstance(schedule, Warmup) else None
    plain = schedule.schedule if isinstance(schedule, Warmup) else schedule
    steps = 0 if warmup is None else warmup.length.steps(steps_per_epoch)
    if isinstance(plain, TorchSchedule):
        needs_value = plain.needs_value
        follower: Rate = PlateauRate(plain, monitor) if needs_value else TorchRate(plain)
    else:
        check_unit(plain.unit, ("step", "epoch"))
        plain.steps_per_epoch, plain.warmup_steps = steps_per_epoch, steps
        steps = 0 if plain.has_own_warmup else steps
        skipped = 0 if plain.counts_warmup else steps
        follower = FactorRate(
            plain,
            optimizer,
            step=max(step, offset + steps),
            total_steps=None if total_steps is None else max(0, total_steps - skipped),
            offset=offset + skipped,
        )
    if warmup is None or steps == 0:
        return follower
    return WarmupRate(follower, step=step, first=offset, steps=steps, start=warmup.start)
