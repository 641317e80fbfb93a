"""The one owner of the learning rate while a run trains."""

from __future__ import annotations

from typing import TYPE_CHECKING

from torch import Tensor
from typing_extensions import override

from epochal.engine.schedule import Schedule, TorchSchedule
from epochal.errors import ConfigError, Problem

if TYPE_CHECKING:
    from torch.optim import Optimizer


class FixedRate:
    """Rates stay what the optimizer was built with; the interface of those that change."""

    def after_step(self, step: int) -> None:
        """Called after each update; ``step`` counts it."""

    def after_epoch(self) -> None:
        """Called after each complete epoch."""

    def after_eval(self, value: float | None) -> None:
        """Called after each evaluation of ``val``, with the monitored value if there is one."""


class FactorRate(FixedRate):
    """The base rate of every group, times the factor of a schedule."""

    def __init__(
        self, schedule: Schedule, optimizer: Optimizer, *, step: int, total_steps: int | None
    ) -> None:
        self._schedule = schedule
        self._groups = optimizer.param_groups
        self._total_steps = total_steps
        for group in self._groups:
            # torch's own name for it, so that a loaded optimizer keeps its base rate.
            group.setdefault("initial_lr", float(group["lr"]))
        self.after_step(step)

    @override
    def after_step(self, step: int) -> None:
        factor = self._schedule.factor(step, self._total_steps)
        for group in self._groups:
            _set_rate(group, group["initial_lr"] * factor)


class TorchRate(FixedRate):
    """What one of torch's schedulers says, asked once per unit."""

    def __init__(self, schedule: TorchSchedule) -> None:
        self._schedule = schedule

    @override
    def after_step(self, step: int) -> None:
        if self._schedule.unit == "step":
            self._schedule.scheduler.step()

    @override
    def after_epoch(self) -> None:
        if self._schedule.unit == "epoch":
            self._schedule.scheduler.step()

    @override
    def after_eval(self, value: float | None) -> None:
        if self._schedule.unit != "eval":
            return
        if not self._schedule.needs_value:
            self._schedule.scheduler.step()
        elif value is None:
            what = "ReduceLROnPlateau needs a monitored metric"
            raise ConfigError(
                Problem("schedule", what, hint="write for example monitor: -val/loss")
            )
        else:
            self._schedule.scheduler.step(value)  # type: ignore[arg-type]  # torch: it is a metric


def build_rate(
    schedule: Schedule | TorchSchedule | None,
    optimizer: Optimizer,
    *,
    step: int,
    total_steps: int | None,
) -> FixedRate:
    """The owner of the rate for a schedule, positioned after ``step`` updates."""
    if schedule is None:
        return FixedRate()
    if isinstance(schedule, TorchSchedule):
        return TorchRate(schedule)
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
