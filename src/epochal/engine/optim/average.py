"""The interface of averaged weights: kept beside the model, moved on by updates."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING

from epochal.engine.events.due import run_position

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from torch import Tensor, nn

    from epochal.config.duration import Duration
    from epochal.engine.interfaces.every import Every
    from epochal.engine.run import Run

AVERAGED_SPLIT = "val_ema"
"""Stands for the split in names of metrics of ``val`` with averaged weights of any kind."""

UPDATES_KEY = ".updates"
"""How many updates there were, among the tensors of an average; no weight can be called so."""


class Average(ABC):
    """A second set of weights, made of those that the steps of a run went through.

    All of it lives in tensors that keep their place in memory, so that steps can be captured.
    """

    every: Every | None = None
    """How often it takes in the weights, between steps; None is inside each step."""

    begin: Duration | None = None
    """When that starts, for one that works between steps; None is at once."""

    @abstractmethod
    def start(self, model: nn.Module) -> None:
        """Begin with the weights as they are; called before the first step."""

    def admit(self, model: nn.Module) -> None:  # noqa: B027 - not every average needs it
        """Heed weights that the model got during the run; called when there may be some."""

    @abstractmethod
    def update(self, skipped: Tensor | None = None) -> None:
        """Take in the weights after an update.

        Args:
            skipped: A tensor of one number on the device, 1 if that update was left out and
                nothing may change; None if updates never are. Nobody reads it on the host.
        """

    @abstractmethod
    def swapped(self) -> AbstractContextManager[None]:
        """The model with the averaged weights in a block; afterwards it has its own again."""

    @abstractmethod
    def state_tensors(self) -> dict[str, Tensor]:
        """All that ``update`` changes, by name."""


def add_averaging(run: Run) -> None:
    """Have weights taken in between steps, where the run's average asks for that."""
    average = run.average
    if average is None or average.every is None:
        return
    begin = average.begin

    def take_in(run: Run) -> None:
        if begin is None or run_position(run, begin.unit) >= begin.amount:
            average.update()

    run.plan.add_period("average", average.every, take_in)
