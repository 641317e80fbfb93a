"""Sums of values times counts, read only on request; on the host or on a device."""

from __future__ import annotations

from abc import ABC, abstractmethod
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, final

import torch
from torch import Tensor
from typing_extensions import override

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    Number = float | int | Tensor

Weighted = tuple["Number", "Number"]  # value and count
Totals = dict[str, tuple[float, float]]  # sum of values times counts, and sum of counts
State = dict[str, Any]  # a tree of plain data and tensors
HostAdditions = list[tuple[str, float, float]]  # additions of a step on the host: name, sum, count

MAX_KEPT_VALUES = 256
"""Values of one name that the host keeps before it adds them up."""


class Sums(ABC):
    """The sums of all values since the last ``take``."""

    @property
    @abstractmethod
    def has_new(self) -> bool:
        """Whether anything was added since the last ``take``."""

    @abstractmethod
    def add(self, values: Mapping[str, Weighted]) -> None:
        """Add the values of one batch."""

    @abstractmethod
    def take(self) -> PendingSums:
        """Start from zero; returns the sums so far, which may not have arrived yet."""

    @abstractmethod
    def replay_additions(self, additions: HostAdditions) -> None:
        """Add what ``capture_additions`` collected, as if the step were taken again."""

    @abstractmethod
    @contextmanager
    def capture_additions(self) -> Iterator[HostAdditions]:
        """Collect the host additions of a block instead of adding them."""

    @abstractmethod
    def state_tensors(self) -> dict[str, Tensor]:
        """The tensors that steps add to; they are never replaced."""

    @abstractmethod
    def state_dict(self) -> State:
        """The state for a checkpoint, without adding values up, since that would round."""

    @abstractmethod
    def load_state_dict(self, state: State) -> None:
        """Load a checkpoint of either kind of sums into the existing tensors."""


class PendingSums(ABC):
    """Sums that were taken and may not have arrived yet."""

    @abstractmethod
    def read(self) -> Totals:
        """All sums; waits until they have arrived."""


@final
class HostSums(Sums):
    """Sums of values in host memory: kept in lists, since adding up at each step is slower."""

    def __init__(self) -> None:
        self._series: dict[str, _Series] = {}

    @property
    @override
    def has_new(self) -> bool:
        return bool(self._series)

    @override
    def add(self, values: Mapping[str, Weighted]) -> None:
        for name, (value, count) in values.items():
            series = self._series.get(name)
            if series is None:
                series = self._series[name] = _Series()
            if type(value) is not Tensor or type(count) is not int or count <= 0:
                series.add_other(value, count)
                continue
            if not value.requires_grad:
                value = value.clone()  # the task may change it later
            else:
                value = value.detach().clone() if value.is_leaf else value.detach()
            series.values.append(value)
            series.weights.append(count)
            series.count += count
            if len(series.values) >= MAX_KEPT_VALUES:
                series.add_up()

    @override
    def take(self) -> PendingSums:
        taken, self._series = self._series, {}
        return _PendingSeries(taken)

    @override
    def replay_additions(self, additions: HostAdditions) -> None:
        for name, total, count in additions:
            series = self._series.setdefault(name, _Series())
            series.total += total
            series.count += count

    @override
    @contextmanager
    def capture_additions(self) -> Iterator[HostAdditions]:
        outer, self._series = self._series, {}
        additions: HostAdditions = []
        try:
            yield additions
        finally:
            additions += [(name, one.total, one.count) for name, one in self._series.items()]
            self._series = outer

    @override
    def state_tensors(self) -> dict[str, Tensor]:
        return {}

    @override
    def state_dict(self) -> State:
        return {"series": {name: series.state_dict() for name, series in self._series.items()}}

    @override
    def load_state_dict(self, state: State) -> None:
        self._series.clear()
        if "series" not in state:
            self.replay_additions(sum_saved_state(state))
        for name, one in state.get("series", {}).items():
            self._series[name] = _Series.from_state(one)


@final
class _Series:
    """The values of one name and their weights."""

    __slots__ = ("count", "counts", "total", "values", "weights")

    def __init__(self) -> None:
        self.values: list[Tensor] = []
        self.weights: list[float] = []
        self.counts: list[Tensor] = []
        self.total = 0.0
        self.count = 0.0

    def add_other(self, value: Number, count: Number) -> None:
        """Add a value of any kind; counts that are not positive are ignored."""
        if isinstance(count, Tensor):
            product, count = multiply_by_count(value, count, torch.float64)
            self.values.append(product)
            self.weights.append(1.0)
            self.counts.append(count)
        elif count > 0:
            self.count += count
            if isinstance(value, Tensor):
                self.values.append(value.detach().clone())
                self.weights.append(count)
            else:
                self.total += value * count
        if len(self.values) >= MAX_KEPT_VALUES:
            self.add_up()

    def add_up(self) -> None:
        """Replace the values by their sum, without reading it."""
        weights = torch.tensor(self.weights, dtype=torch.float64)
        self.values = [torch.dot(_join(self.values), weights)]
        self.weights = [1.0]
        if self.counts:
            self.counts = [_join(self.counts).sum()]

    def state_dict(self) -> State:
        """All values, not added up."""
        return {
            "values": _pack(self.values),
            "weights": list(self.weights),
            "counts": _pack(self.counts),
            "total": self.total,
            "count": self.count,
        }

    @classmethod
    def from_state(cls, state: State) -> _Series:
        """The series with this state."""
        series = cls()
        series.values, series.counts = list(state["values"]), list(state["counts"])
        series.weights = list(state["weights"])
        series.total, series.count = state["total"], state["count"]
        return series

    def read(self) -> tuple[float, float]:
        total, count = self.total, self.count
        for value, weight in zip(self.values, self.weights, strict=True):
            total += value.item() * weight
        return total, count + sum([one.item() for one in self.counts])


@final
class _PendingSeries(PendingSums):
    def __init__(self, series: dict[str, _Series]) -> None:
        self._series = series

    @override
    def read(self) -> Totals:
        return {name: series.read() for name, series in self._series.items()}


def multiply_by_count(value: Number, count: Tensor, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """A value times its count, and the count; both 0 if there are no items."""
    count = count.detach().reshape(()).to(dtype).clamp(min=0)
    if isinstance(value, Tensor):
        value = value.detach().reshape(()).to(count.device, dtype)
    return torch.where(count > 0, value * count, 0.0), count


def sum_saved_state(state: State) -> HostAdditions:
    """The total of each name in the state of either kind of sums."""
    if "series" in state:
        read = {name: _Series.from_state(one).read() for name, one in state["series"].items()}
        return [(name, total, count) for name, (total, count) in read.items()]
    numbers = [number for chunk in state["chunks"] for number in chunk.tolist()]
    additions: HostAdditions = []
    for name, (total, count) in state["hosts"].items():
        total += numbers[state["sums"][name]] if name in state["sums"] else 0.0
        count += numbers[state["counts"][name]] if name in state["counts"] else 0.0
        additions.append((name, total, count))
    return additions


def _pack(numbers: list[Tensor]) -> Tensor | list[Tensor]:
    """Numbers as one vector if they have the same dtype; ``list`` restores them."""
    if not numbers or any(one.dtype != numbers[0].dtype or one.dim() for one in numbers):
        return list(numbers)
    return torch.stack(numbers)


def _join(numbers: list[Tensor]) -> Tensor:
    """Numbers as one float64 vector."""
    if any(one.dtype != numbers[0].dtype or one.dim() for one in numbers):
        numbers = [one.reshape(()).double() for one in numbers]
    return torch.stack(numbers).double()
