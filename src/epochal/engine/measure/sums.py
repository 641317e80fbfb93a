"""Sums of values times counts on the host or on a device, read only on request."""

from __future__ import annotations

from abc import ABC, abstractmethod
from contextlib import contextmanager
from operator import itemgetter
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

_CHUNK = 32  # elements of one vector


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


@final
class DeviceSums(Sums):
    """Sums of values on a device: vectors there, whose elements are updated in place.

    Elements never move, so that a captured step can add to them. Counts that are plain numbers
    are summed on the host.
    """

    def __init__(self, device: torch.device) -> None:
        self._device = device
        # MPS has no float64.
        self._dtype = torch.float32 if device.type == "mps" else torch.float64
        self._chunks: list[Tensor] = []
        self._size = 0
        self._sums: dict[str, _Element] = {}
        self._counts: dict[str, _Element] = {}
        self._hosts: dict[str, list[float]] = {}
        self._additions: HostAdditions | None = None
        self._spare: list[Tensor] = []

    @property
    @override
    def has_new(self) -> bool:
        return bool(self._hosts)

    @override
    def add(self, values: Mapping[str, Weighted]) -> None:
        for name, (value, count) in values.items():
            if isinstance(count, Tensor):
                self._add_product(name, value, count)
                continue
            if count <= 0:
                continue
            if isinstance(value, Tensor):
                element = self._sums.get(name)
                if element is None:
                    element = self._sums[name] = self._new_element()
                element.add(value.detach(), count if type(count) is int else float(count))
                value = 0.0
            self._add_on_host(name, value * count, count)

    @override
    def take(self) -> PendingSums:
        hosts, self._hosts = self._hosts, {}
        copies = [AsyncCopy(chunk, self._spare) for chunk in self._chunks]
        for chunk in self._chunks:
            chunk.zero_()  # runs after the copy, in the same stream
        return _PendingVector(copies, dict(self._sums), dict(self._counts), hosts)

    @override
    def replay_additions(self, additions: HostAdditions) -> None:
        for name, total, count in additions:
            self._add_on_host(name, total, count)

    @override
    @contextmanager
    def capture_additions(self) -> Iterator[HostAdditions]:
        outer, self._additions = self._additions, []
        try:
            yield self._additions
        finally:
            self._additions = outer

    @override
    def state_tensors(self) -> dict[str, Tensor]:
        return {str(index): chunk for index, chunk in enumerate(self._chunks)}

    @override
    def state_dict(self) -> State:
        return {
            "chunks": list(self._chunks),
            "sums": {name: element.place for name, element in self._sums.items()},
            "counts": {name: element.place for name, element in self._counts.items()},
            "hosts": {name: list(host) for name, host in self._hosts.items()},
        }

    @override
    def load_state_dict(self, state: State) -> None:
        for chunk in self._chunks:
            chunk.zero_()
        self._hosts = {}
        if "chunks" not in state:
            self.replay_additions(sum_saved_state(state))
            return
        kinds = ((self._sums, state["sums"]), (self._counts, state["counts"]))
        saved = [
            (place, name, elements) for elements, places in kinds for name, place in places.items()
        ]
        for place, name, elements in sorted(saved, key=itemgetter(0)):  # new ones in saved order
            if name not in elements:
                elements[name] = self._new_element()
            elements[name].view.copy_(state["chunks"][place // _CHUNK][place % _CHUNK])
        self._hosts = {name: list(host) for name, host in state["hosts"].items()}

    def _add_product(self, name: str, value: Number, count: Tensor) -> None:
        """Add a value whose count is on the device too."""
        product, count = multiply_by_count(value, count, self._dtype)
        for elements, number in ((self._sums, product), (self._counts, count)):
            if name not in elements:
                elements[name] = self._new_element()
            elements[name].add(number, 1)
        self._add_on_host(name, 0.0, 0.0)

    def _add_on_host(self, name: str, total: float, count: float) -> None:
        if self._additions is not None:
            self._additions.append((name, total, count))
            return
        host = self._hosts.get(name)
        if host is None:
            self._hosts[name] = [total, count]
        else:
            host[0] += total
            host[1] += count

    def _new_element(self) -> _Element:
        place = self._size
        if place == _CHUNK * len(self._chunks):
            self._chunks.append(torch.zeros(_CHUNK, dtype=self._dtype, device=self._device))
        self._size += 1
        return _Element(place, self._chunks[-1][place % _CHUNK])


@final
class _Element:
    """One element of a vector on a device."""

    __slots__ = ("place", "view")

    def __init__(self, place: int, view: Tensor) -> None:
        self.place = place
        self.view = view

    def add(self, value: Tensor, count: float) -> None:
        """Add a value times a count, in one operation."""
        if value.shape or value.device != self.view.device:
            value = value.reshape(()).to(self.view.device, non_blocking=True)
        self.view.add_(value, alpha=count)


@final
class _PendingVector(PendingSums):
    """Taken sums: copies of the vectors, and the sums of the host."""

    def __init__(
        self,
        copies: list[AsyncCopy],
        sums: dict[str, _Element],
        counts: dict[str, _Element],
        hosts: dict[str, list[float]],
    ) -> None:
        self._copies = copies
        self._sums = sums
        self._counts = counts
        self._hosts = hosts

    @override
    def read(self) -> Totals:
        numbers = [number for copy in self._copies for number in copy.read()]
        totals: Totals = {}
        for name, (total, count) in self._hosts.items():
            if name in self._sums:
                total += numbers[self._sums[name].place]
            if name in self._counts:
                count += numbers[self._counts[name].place]
            totals[name] = total, count
        return totals


@final
class AsyncCopy:
    """An asynchronous copy of a tensor to the host; only ``read`` waits.

    The source is copied in stream order, so that it may be changed at once. After its read, the
    pinned buffer is added to ``spare``, for later copies.
    """

    def __init__(self, source: Tensor, spare: list[Tensor]) -> None:
        self._spare = spare
        self._event: torch.cuda.Event | None = None
        if source.is_cuda:
            self._copied = spare.pop() if spare else _pinned_like(source)
            self._copied.copy_(source, non_blocking=True)
            self._event = torch.cuda.Event()  # type: ignore[no-untyped-call]  # torch's own
            self._event.record(torch.cuda.current_stream(source.device))
        else:
            self._copied = source.clone()

    def read(self) -> list[float]:
        """The numbers; waits until they have arrived."""
        if self._event is not None:
            self._event.synchronize()
        numbers: list[float] = self._copied.reshape(-1).tolist()  # integers stay integers
        if self._event is not None:
            self._spare.append(self._copied)
        return numbers


def _pinned_like(source: Tensor) -> Tensor:
    return torch.empty(source.shape, dtype=source.dtype, pin_memory=True)
