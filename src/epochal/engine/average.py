"""The interface of averaged weights: kept beside the model, moved on by every update."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from torch import Tensor, nn

AVERAGED = "val_ema"
"""Stands for the split in names of metrics of ``val`` with averaged weights."""


class Average(ABC):
    """A second set of weights, made of those that the steps of a run went through.

    All of it lives in tensors that keep their place in memory, so that steps can be captured.
    """

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
