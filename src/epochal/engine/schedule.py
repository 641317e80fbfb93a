"""The interface of learning-rate schedules, and the adapter of torch's own."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, final

from torch.optim.lr_scheduler import ReduceLROnPlateau

from epochal.errors import ConfigError, Problem, suggest

if TYPE_CHECKING:
    from torch.optim.lr_scheduler import LRScheduler

UNITS = ("step", "epoch", "eval")


class Schedule(ABC):
    """A factor on the learning rate that depends on the step alone.

    It multiplies the base rate of each parameter group, so ratios between groups stay, and
    since it has no memory a resumed run needs none of its state.
    """

    @abstractmethod
    def factor(self, step: int, total_steps: int | None) -> float:
        """The factor of the update that follows ``step`` finished ones.

        Args:
            step: Updates done so far; 0 for the first update.
            total_steps: Updates of the whole run, if that is known.
        """


@final
class TorchSchedule:
    """A scheduler of ``torch.optim.lr_scheduler``, advanced once per unit by the engine alone.

    Args:
        scheduler: Built around the optimizer of the run.
        unit: When it advances: after each ``step``, each ``epoch`` or each ``eval``uation.
            ``ReduceLROnPlateau`` always advances when the monitored metric has a new value.
    """

    def __init__(self, scheduler: LRScheduler, *, unit: str = "step") -> None:
        if unit not in UNITS:
            hint = suggest(unit, UNITS)
            raise ConfigError(Problem("schedule.unit", f"unknown unit {unit!r}", hint=hint))
        self.scheduler = scheduler
        self.needs_value = isinstance(scheduler, ReduceLROnPlateau)
        self.unit = "eval" if self.needs_value else unit
