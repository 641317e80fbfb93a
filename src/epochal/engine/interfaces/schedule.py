"""The interface of learning-rate schedules, the warm-up, and the adapter for torch's."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, final

from torch.optim.lr_scheduler import LRScheduler, ReduceLROnPlateau
from typing_extensions import override

from epochal.config.duration import Duration, parse_duration
from epochal.errors import ConfigError, Problem, suggest

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import TypeAlias

    from torch.optim import Optimizer

    OneSchedule: TypeAlias = "Schedule | TorchSchedule | Warmup"
    AnySchedule: TypeAlias = "OneSchedule | OptimizerSchedules"

UNITS = ("step", "epoch", "eval")


class Schedule(ABC):
    """A factor on the learning rate that depends only on the step.

    It multiplies the base rate of each parameter group, so ratios between groups stay the same.
    It has no state, so checkpoints need none.
    """

    unit: str = "step"
    """When its factor is updated: before each ``step`` or each ``epoch``."""

    counts_warmup: bool = False
    """Whether it counts the steps of the warm-up; else its first step follows the warm-up."""

    has_own_warmup: bool = False
    """Whether its factor includes the warm-up, so that the engine adds none."""

    steps_per_epoch: int | None = None
    """Steps per epoch of the run, if known; set before the first step."""

    warmup_steps: int = 0
    """Length of the warm-up; set before the first step."""

    @abstractmethod
    def factor(self, step: int, total_steps: int | None) -> float:
        """The factor of the update after ``step`` finished ones.

        Args:
            step: Updates done so far; starts at 0 again after a warm-up.
            total_steps: Updates of the run without the warm-up, if known.
        """


@final
class TorchSchedule:
    """A scheduler of ``torch.optim.lr_scheduler``, stepped only by the engine.

    Args:
        scheduler: Built with the optimizer of the run.
        unit: When it steps: after each ``step``, each ``epoch`` or each ``eval``uation.
            ``ReduceLROnPlateau`` always steps when the monitored metric has a new value.
    """

    def __init__(self, scheduler: LRScheduler, *, unit: str = "step") -> None:
        check_unit(unit, UNITS)
        self.scheduler = scheduler
        self.needs_value = isinstance(scheduler, ReduceLROnPlateau)
        self.unit = "eval" if self.needs_value else unit


@final
class Warmup:
    """A linear warm-up to the first rate of a schedule, which starts afterwards.

    Args:
        schedule: The schedule after the warm-up, also a scheduler of torch.
        length: In steps (``500``, ``500st``) or epochs (``1ep``).
        start: The factor at the first step.
    """

    def __init__(
        self,
        schedule: Schedule | TorchSchedule | LRScheduler,
        length: int | str | Duration,
        *,
        start: float = 0.01,
    ) -> None:
        if isinstance(schedule, LRScheduler):
            schedule = TorchSchedule(schedule)
        self.schedule: Schedule | TorchSchedule = schedule
        self.length = ScheduleLength("warmup", length)
        if not 0 <= start <= 1:
            raise schedule_error("warmup_start", f"must be between 0 and 1, got {start!r}")
        self.start = start


@final
@dataclass(frozen=True)
class OptimizerSchedules:
    """A schedule for each of several optimizers."""

    members: Mapping[str, tuple[Optimizer, OneSchedule | None]]
    """The optimizer and its schedule, if any, by the name of the optimizer."""


@final
class ScheduleLength:
    """A length in steps or epochs.

    Args:
        key: Its key in the section ``schedule``, for messages.
        length: A number of steps, or a duration such as ``500st`` or ``1ep``.
        least: The minimal number of units.

    Raises:
        ConfigError: It is invalid, too small, or in another unit.
    """

    def __init__(self, key: str, length: int | str | Duration, *, least: int = 0) -> None:
        self._key = key
        try:
            length = parse_duration(length) if isinstance(length, str) else length
        except ValueError as error:
            raise schedule_error(key, str(error)) from error
        self.amount = int(length.amount) if isinstance(length, Duration) else length
        self.unit = length.unit if isinstance(length, Duration) else "st"
        if self.unit not in ("st", "ep"):
            what = f"must be in steps or epochs, got {str(length)!r}"
            raise schedule_error(key, what, hint=f"{key}: 500st")
        if self.amount < least:
            rule = "not be negative" if not least else f"be at least {least}"
            raise schedule_error(key, f"must {rule}, got {length!r}", hint=f"{key}: 500st")

    @override
    def __str__(self) -> str:
        return f"{self.amount}{self.unit}"

    def steps(self, per_epoch: int | None) -> int:
        """The number of steps; ``per_epoch`` are the steps of an epoch, if known."""
        if self.unit == "st":
            return self.amount
        if per_epoch is None:
            what = f"cannot be {str(self)!r}: the number of steps per epoch is unknown"
            raise schedule_error(self._key, what, hint=f"write it in steps: `{self._key}: 500st`")
        return self.amount * per_epoch


def check_unit(unit: str, known: tuple[str, ...]) -> None:
    """Refuse an unknown unit."""
    if unit not in known:
        raise schedule_error("unit", f"unknown unit {unit!r}", hint=suggest(unit, known))


def schedule_error(key: str, what: str, *, hint: str = "") -> ConfigError:
    """The error about a key of the section ``schedule``."""
    return ConfigError(Problem(f"schedule.{key}", what, hint=hint))
