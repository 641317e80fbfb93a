"""The interface of metrics: update, compute, reset, merge."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

import torch
from torch import Tensor

from epochal.errors import TaskError


class Metric(ABC):
    """One or more numbers, computed over all batches of a split.

    The engine calls ``reset`` before a loader, ``update`` after each of its batches and
    ``compute`` at its end. The name comes from the config, or from ``Parts.metrics``.

    Write ``update`` and ``compute``. Sums that ``add`` keeps and tensors that ``keep`` keeps are
    reset, merged between processes and saved in checkpoints; a class that keeps anything else
    overrides ``reset`` and ``merge`` too.
    """

    on: tuple[str, ...] = ("val", "test")
    """The splits on which it is computed."""

    _sums: dict[str, Tensor] | None = None
    _kept: dict[str, list[Tensor]] | None = None

    @abstractmethod
    def update(self, *args: Any, **kwargs: Any) -> None:  # noqa: ANN401 - each has its own
        """Add a batch; called without gradients.

        Define it with the arguments that you need: ``out`` is the task's output and ``batch`` the
        batch; others are parts of them, found by name or given as ``inputs`` in the config.
        """

    @abstractmethod
    def compute(self) -> float | Tensor | dict[str, float]:
        """The value over all batches since ``reset``; keys of a dict are appended to the name.

        A tensor of two dimensions is recorded as a table.
        """

    def reset(self) -> None:
        """Remove all batches."""
        self._sums = self._kept = None

    def merge(self, other: Any) -> None:  # noqa: ANN401 - a metric of the same class
        """Add the batches of another object of this class, such as that of another process."""
        if type(self).reset is not Metric.reset:
            raise TaskError(
                f"{type(self).__name__}.merge: is missing, so processes cannot join its batches\n"
                "  write def merge(self, other), or keep everything with self.add and self.keep"
            )
        self.add(**other._sums or {})
        for name, tensors in (other._kept or {}).items():
            for tensor in tensors:
                self.keep(**{name: tensor})

    def add(self, **values: Tensor | float) -> None:
        """Add to the sums of these names; tensors stay on their device, and nothing waits for it.

        Sums of floats have double precision.
        """
        sums = self._sums = {} if self._sums is None else self._sums
        for name, value in values.items():
            tensor = _widen(torch.as_tensor(value).detach())
            known = sums.get(name)
            sums[name] = tensor if known is None else known + tensor.to(known.device)

    def keep(self, **tensors: Tensor) -> None:
        """Keep tensors of a batch for ``compute``, on their device."""
        kept = self._kept = {} if self._kept is None else self._kept
        for name, tensor in tensors.items():
            kept.setdefault(name, []).append(tensor.detach())

    def total(self, name: str) -> Tensor:
        """The sum of a name; 0 without batches."""
        return torch.tensor(0.0) if self._sums is None else self._sums[name]

    def joined(self, name: str) -> Tensor:
        """The kept tensors of a name, one after the other; empty without batches."""
        kept = [] if self._kept is None else self._kept[name]
        return torch.cat([one.to(kept[0].device) for one in kept]) if kept else torch.empty(0)


def _widen(value: Tensor) -> Tensor:
    if not value.is_floating_point():
        return value.long()
    # Apple's devices have no float64.
    return value.float() if value.device.type == "mps" else value.double()
