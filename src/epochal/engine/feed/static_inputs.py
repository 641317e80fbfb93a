"""Gathers batches into the tensors that a captured step reads."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, final

import torch

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from torch import Tensor

    from epochal.engine.interfaces.task import Batch

    Pack = Callable[[Iterable[Tensor]], Batch]


@cache
def capture_stream(device: torch.device) -> torch.cuda.Stream:
    """One stream for all graphs of a device: libraries keep memory for each stream they saw."""
    return torch.cuda.Stream(device)  # type: ignore[no-untyped-call]  # torch has no types here


@final
class StaticInputs:
    """The tensors into which batches of the right size are gathered."""

    def __init__(self) -> None:
        self._targets: list[Tensor] = []
        self._size = -1
        self._graph_gather: GraphGather | None = None

    def set_targets(self, targets: list[Tensor]) -> None:
        """Gather batches of that size into these tensors; without any, into new tensors."""
        self._targets = targets
        self._size = len(targets[0]) if targets and targets[0].ndim else -1
        self.release_data()

    def release_data(self) -> None:
        """Drop references to the data."""
        self._graph_gather = None

    def gather_batches(
        self,
        columns: tuple[Tensor, ...],
        pack: Pack,
        order: Tensor,
        parts: Iterable[Tensor],
        select: Callable[[Tensor], Batch],
    ) -> Iterator[Batch]:
        """The batches of a pass over data on the device; ``select`` gathers into new tensors."""
        seen: list[Tensor] = []
        fill: Callable[[int, Tensor], None] | None = None
        first = 0
        for indices in parts:
            if self._targets is not seen:
                seen = self._targets
                fill = self._filler(columns, order) if _have_same_rows(columns, seen) else None
            if fill is None or len(indices) != self._size:
                yield select(indices)
            else:
                fill(first, indices)
                yield pack(seen)
            first += len(indices)

    def _filler(self, columns: tuple[Tensor, ...], order: Tensor) -> Callable[[int, Tensor], None]:
        """A function that gathers rows, given by position and indices, into the targets."""
        targets = self._targets
        if order.device.type != "cuda":

            def fill(_first: int, indices: Tensor) -> None:
                for column, target in zip(columns, targets, strict=True):
                    torch.index_select(column, 0, indices, out=target)

            return fill

        known = self._graph_gather
        if known is None or known.columns is not columns:
            known = self._graph_gather = GraphGather(columns, targets, len(columns[0]))
        known.set_order(order)
        return known.gather


def _have_same_rows(columns: tuple[Tensor, ...], targets: list[Tensor]) -> bool:
    """Whether rows of the columns fit the targets, which torch would resize otherwise."""
    return [(column.shape[1:], column.dtype) for column in columns] == [
        (target.shape[1:], target.dtype) for target in targets
    ]


@final
class GraphGather:
    """Gathers consecutive batches into the same tensors with a CUDA graph.

    The position in the order is on the device, so nothing is sent to it between batches. The data
    stay at their addresses.
    """

    def __init__(self, columns: tuple[Tensor, ...], targets: list[Tensor], max_length: int) -> None:
        device, self._size = columns[0].device, len(targets[0])
        self.columns, self.targets = columns, targets
        self._order = torch.zeros(max_length, dtype=torch.int64, device=device)
        self._first = torch.zeros((), dtype=torch.int64, device=device)
        self._next = -1
        self._graph = self._capture(torch.arange(self._size, device=device))

    def _capture(self, span: Tensor) -> torch.cuda.CUDAGraph:
        graph = torch.cuda.CUDAGraph()
        self._places, self._rows = torch.empty_like(span), torch.empty_like(span)
        self._span = span
        with torch.cuda.graph(
            graph, stream=capture_stream(span.device), capture_error_mode="thread_local"
        ):
            torch.add(self._span, self._first, out=self._places)
            torch.index_select(self._order, 0, self._places, out=self._rows)
            for column, target in zip(self.columns, self.targets, strict=True):
                torch.index_select(column, 0, self._rows, out=target)
            self._first.add_(self._size)
        return graph

    def set_order(self, order: Tensor) -> None:
        """Use another order of the rows."""
        self._order[: len(order)].copy_(order)
        self._next = -1

    def gather(self, first: int, _: Tensor) -> None:
        """Fill the targets with the rows from this position of the order on."""
        if first != self._next:
            self._first.fill_(first)
        self._graph.replay()
        self._next = first + self._size
