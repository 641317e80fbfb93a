"""The interface of averaged weights."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from torch import Tensor, nn

    from epochal.config.duration import Duration
    from epochal.engine.interfaces.every import Every

AVERAGED_SPLIT = "val_ema"
"""The split in names of metrics that ``val`` has with averaged weights, of any kind."""

UPDATES_KEY = ".updates"
"""The key of the number of updates in the tensors of an average; no weight has such a name."""


class Average(ABC):
    """A second set of weights: an average over the steps of a run.

    All of it is in tensors that keep their address, so that steps can be captured.
    """

    every: Every | None = None
    """How often it is updated between steps; None updates it inside each step."""

    begin: Duration | None = None
    """When updates between steps start; None is at once."""

    @abstractmethod
    def start(self, model: nn.Module) -> None:
        """Start with the current weights; called before the first step."""

    def admit(self, model: nn.Module) -> None:  # noqa: B027 - not every average needs it
        """Add weights that the model got during the run; called when there may be some."""

    @abstractmethod
    def update(self, skipped: Tensor | None = None) -> None:
        """Add the weights after an update.

        Args:
            skipped: A tensor of one number on the device, 1 if that update was skipped and
                nothing may change; None if updates are never skipped. The host does not read it.
        """

    @abstractmethod
    def swapped(self) -> AbstractContextManager[None]:
        """Give the model the averaged weights in a block."""

    @abstractmethod
    def state_tensors(self) -> dict[str, Tensor]:
        """All that ``update`` changes, by name."""
