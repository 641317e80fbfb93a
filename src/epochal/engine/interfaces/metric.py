"""The interface of metrics that are not means over batches."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any


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
    def update(self, *args: Any, **kwargs: Any) -> None:  # noqa: ANN401 - each has its own
        """Add a batch; called without gradients.

        Define it with the arguments that you need: ``out`` is the task's output and ``batch`` the
        batch; others are parts of them, found by name or given as ``inputs`` in the config.
        """

    def merge(self, other: Metric) -> None:
        """Add the batches of another object of this class, which another process has computed.

        Without this method, every process of a run evaluates all batches.
        """
        raise NotImplementedError(f"{type(self).__name__} has no method merge")

    @abstractmethod
    def compute(self) -> float | dict[str, float]:
        """The value over all batches since ``reset``; keys of a dict are appended to the name."""
