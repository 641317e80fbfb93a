"""The learning rates of an optimizer's groups, as floats and as the tensors that groups hold."""

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
    """The rate of each group; a tensor is written when its rate changes, and not read.

    Args:
        optimizer: Has the groups; None has none.
    """

    def __init__(self, optimizer: Optimizer | None = None) -> None:
        self._optimizer = optimizer
        self._tensors: list[Tensor | None] = []
        self._versions: list[int] = []  # counts the writes to each, without reading the device
        self.values: list[float] = []
        """The rate of each group."""

        self.used_at: tuple[int, list[float]] = (-1, [])
        """The last update after which rates may have moved, and the rates that it used."""

        self.adopt()

    @property
    def groups(self) -> list[ParamGroup]:
        """The groups as they are now."""
        return [] if self._optimizer is None else self._optimizer.param_groups

    def adopt(self) -> None:
        """Read rates that users wrote into groups, and put tensors back that they replaced."""
        for index, group in enumerate(self.groups):
            rate: float | Tensor = group["lr"]
            if index == len(self.values):
                self.values.append(read_rate(rate))
                self._tensors.append(rate if isinstance(rate, Tensor) else None)
                self._versions.append(rate._version if isinstance(rate, Tensor) else 0)
                continue
            tensor = self._tensors[index]
            if tensor is None or rate is not tensor:
                self.set_rate(index, read_rate(rate))
            elif tensor._version != self._versions[index]:
                self.set_rate(index, read_rate(tensor, self.values[index]))

    def keep_used(self, step: int) -> None:
        """Keep the rates of the update ``step``, before they move; called once or more after it."""
        if step != self.used_at[0]:
            self.used_at = step, list(self.values)

    def get_used(self, step: int) -> list[float]:
        """The rates of the update ``step``, the latest one."""
        return self.used_at[1] if step == self.used_at[0] else self.values

    def set_rate(self, index: int, value: float) -> None:
        """Set the rate of a group, in its tensor if it has one."""
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
        """Set rates of a checkpoint, whose optimizer has been restored already."""
        self._tensors = [
            group["lr"] if isinstance(group["lr"], Tensor) else None for group in self.groups
        ]
        self._versions = [0 if one is None else one._version for one in self._tensors]
        self.values = list(values)
        self.used_at = (-1, [])

    def step_scheduler(self, advance: Callable[[], object]) -> None:
        """Let a scheduler of torch compute with plain floats, which reads no device."""
        self.adopt()
        for group, value in zip(self.groups, self.values, strict=True):
            group["lr"] = value
        try:
            advance()
        finally:
            self.adopt()


def name_rates(optimizer: Optimizer | None, rates: Sequence[float]) -> dict[str, float]:
    """Rates by the names of their groups, as in ``read_rates``."""
    groups = [] if optimizer is None else optimizer.param_groups
    return {
        _name(group, index, len(groups)): rate
        for index, (group, rate) in enumerate(zip(groups, rates, strict=False))
    }


def _name(group: ParamGroup, index: int, count: int) -> str:
    return "lr" if count == 1 else f"lr/{group.get('name', index)}"


def read_rates(optimizer: Optimizer | None, known: Sequence[float] = ()) -> dict[str, float]:
    """The rate as ``lr``; with several groups ``lr/<name or index>`` for each.

    Args:
        optimizer: Has the groups.
        known: The rates that their owner knows, so that no tensor must be read.
    """
    groups = [] if optimizer is None else optimizer.param_groups
    rates = {}
    for index, group in enumerate(groups):
        name = _name(group, index, len(groups))
        is_known = isinstance(group["lr"], Tensor) and index < len(known)
        rates[name] = known[index] if is_known else read_rate(group["lr"])
    return rates


def read_rate(rate: float | Tensor, known: float | None = None) -> float:
    """A rate as a float; of a narrow tensor the known value, or the shortest decimal that fits."""
    value = float(rate)
    if not isinstance(rate, Tensor) or rate.dtype == torch.float64:
        return value
    likely = [float(f"{value:.{digits}g}") for digits in range(1, 10)]
    for one in likely if known is None else [known, *likely]:
        if torch.tensor(one, dtype=rate.dtype).item() == value:
            return one
    return value
