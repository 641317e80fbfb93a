"""The rates of an optimizer's groups: plain floats, and tensors where groups want tensors."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, final

import torch
from torch import Tensor

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from torch.optim import Optimizer

    ParamGroup = dict[str, Any]  # torch's own: options by name


@final
class GroupRates:
    """What each group trains with; a tensor is written when its rate changes and not read.

    Args:
        optimizer: Has the groups; None has none.
    """

    def __init__(self, optimizer: Optimizer | None = None) -> None:
        self._optimizer = optimizer
        self._tensors: list[Tensor | None] = []
        self._versions: list[int] = []  # how often each was written to, which the host knows
        self.values: list[float] = []
        """The rate of each group."""

        self.adopt()

    @property
    def groups(self) -> list[ParamGroup]:
        """The groups as they are now."""
        return [] if self._optimizer is None else self._optimizer.param_groups

    def adopt(self) -> None:
        """Take over the rates that somebody else gave to groups, and give tensors back."""
        for index, group in enumerate(self.groups):
            rate: float | Tensor = group["lr"]
            if index == len(self.values):
                self.values.append(read_rate(rate))
                self._tensors.append(rate if isinstance(rate, Tensor) else None)
                self._versions.append(rate._version if isinstance(rate, Tensor) else 0)
                continue
            tensor = self._tensors[index]
            if tensor is None or rate is not tensor:
                self.put(index, read_rate(rate))
            elif tensor._version != self._versions[index]:
                self.put(index, read_rate(tensor, self.values[index]))

    def put(self, index: int, value: float) -> None:
        """Give a group its rate, where it wants it."""
        group, tensor = self.groups[index], self._tensors[index]
        if tensor is None:
            group["lr"] = value
        else:
            if value != self.values[index]:
                tensor.fill_(value)
            self._versions[index] = tensor._version
            group["lr"] = tensor
        self.values[index] = value

    def load(self, values: Sequence[float]) -> None:
        """Take rates from a checkpoint; the optimizer has the groups and tensors of it already."""
        self._tensors = [
            group["lr"] if isinstance(group["lr"], Tensor) else None for group in self.groups
        ]
        self._versions = [0 if one is None else one._version for one in self._tensors]
        self.values = list(values)

    def step_scheduler(self, advance: Callable[[], object]) -> None:
        """Have a scheduler of torch reckon with plain floats, which reads no device."""
        self.adopt()
        for group, value in zip(self.groups, self.values, strict=True):
            group["lr"] = value
        try:
            advance()
        finally:
            self.adopt()


@final
class MultiOptimizerGroupRates:
    """The rates of several optimizers, one after the other.

    Args:
        parts: The rates of each.
    """

    def __init__(self, parts: Sequence[GroupRates]) -> None:
        self._parts = parts

    @property
    def values(self) -> list[float]:
        """The rate of each group."""
        return [value for part in self._parts for value in part.values]

    @property
    def groups(self) -> list[ParamGroup]:
        """The groups as they are now."""
        return [group for part in self._parts for group in part.groups]

    def adopt(self) -> None:
        """Take over the rates that somebody else gave to groups."""
        for part in self._parts:
            part.adopt()

    def put(self, index: int, value: float) -> None:
        """Give a group its rate, where it wants it."""
        for part in self._parts:
            if index < len(part.values):
                part.put(index, value)
                return
            index -= len(part.values)

    def load(self, values: Sequence[float]) -> None:
        """Take rates from a checkpoint, as many as each of them has groups."""
        for part in self._parts:
            count = len(part.groups)
            part.load(values[:count])
            values = values[count:]


def read_rates(optimizer: Optimizer | None, known: Sequence[float] = ()) -> dict[str, float]:
    """The rate as ``lr``; with several groups ``lr/<name or index>`` for each.

    Args:
        optimizer: Has the groups.
        known: What the owner of the rates knows of them, so that no tensor need be read.
    """
    groups = [] if optimizer is None else optimizer.param_groups
    rates = {}
    for index, group in enumerate(groups):
        name = "lr" if len(groups) == 1 else f"lr/{group.get('name', index)}"
        is_known = isinstance(group["lr"], Tensor) and index < len(known)
        rates[name] = known[index] if is_known else read_rate(group["lr"])
    return rates


def read_rate(rate: float | Tensor, known: float | None = None) -> float:
    """A rate as a float; of a narrow one what is known, or the shortest decimal, if it fits."""
    value = float(rate)
    if not isinstance(rate, Tensor) or rate.dtype == torch.float64:
        return value
    likely = [float(f"{value:.{digits}g}") for digits in range(1, 10)]
    for one in likely if known is None else [known, *likely]:
        if torch.tensor(one, dtype=rate.dtype).item() == value:
            return one
    return value
