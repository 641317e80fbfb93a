"""The interface of metrics that need more than an average over batches."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from epochal.engine.interfaces.task import Batch, Output


class Metric(ABC):
    """A number, or several, computed over all batches of one split.

    The engine calls ``reset`` before a loader, ``update`` after each of its batches and
    ``compute`` at its end. The name comes from the config, or from the mapping that was given.
    """

    on: tuple[str, ...] = ("val", "test")
    """Splits it is computed on."""

    @abstractmethod
    def reset(self) -> None:
        """Forget all batches."""

    @abstractmethod
    def update(self, out: Output, batch: Batch) -> None:
        """Take in one batch and what the task made of it; called without gradients."""

    @abstractmethod
    def compute(self) -> float | dict[str, float]:
        """The value over all batches since ``reset``; the keys of a mapping join the name."""
