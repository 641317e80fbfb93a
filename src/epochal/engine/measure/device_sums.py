"""Sums of values times counts on a device, and their asynchronous copies to the host."""

from __future__ import annotations

from contextlib import contextmanager
from operator import itemgetter
from typing import TYPE_CHECKING, final

import torch
from torch import Tensor
from typing_extensions import override

from epochal.engine.measure.sums import PendingSums, Sums, multiply_by_count, sum_saved_state

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from epochal.engine.measure.sums import HostAdditions, Number, State, Totals, Weighted

_CHUNK = 32  # elements of one vector


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
