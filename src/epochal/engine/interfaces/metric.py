"""The interface of metrics that are not means over batches."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from epochal.engine.interfaces.task import Batch, Output


class Metric(ABC):
    """One or more numbers, computed over all batches of a split.

    The engine calls ``reset`` before a loader, ``update`` after each of its batches and
    ``compute`` at its end. The name comes from the config, or from ``Parts.metrics``.
    """

    on: tuple[str, ...] = ("val", "test")
    """The splits on which it is computed."""

    @abstractmethod
    def reset(self) -> None:
        """Remove all batches."""

    @abstractmethod
    def update(self, out: Output, batch: Batch) -> None:
        """Add a batch and the task's output for it; called without gradients."""

    @abstractmethod
    def compute(self) -> float | dict[str, float]:
        """The value over all batches since ``reset``; keys of a dict are appended to the name."""
