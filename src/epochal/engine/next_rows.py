"""The next rows of data on a device as one replayed graph: a launch, however many columns."""

from __future__ import annotations

from typing import TYPE_CHECKING, final

import torch

from epochal.engine.capture import capture_stream

if TYPE_CHECKING:
    from torch import Tensor


@final
class NextRows:
    """Gathers one batch after the other into the same tensors.

    The device itself counts where it is in the order, so nothing is sent to it between batches.

    Args:
        columns: What is gathered from; they stay where they are.
        targets: Where the rows of a batch go.
        most: Length of the longest order.
    """

    def __init__(self, columns: tuple[Tensor, ...], targets: list[Tensor], most: int) -> None:
        device, self._size = columns[0].device, len(targets[0])
        self.columns, self.targets = columns, targets
        self._order = torch.zeros(most, dtype=torch.int64, device=device)
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

    def begin(self, order: Tensor) -> None:
        """Go by another order of the rows."""
        self._order[: len(order)].copy_(order)
        self._next = -1

    def take(self, first: int, _: Tensor) -> None:
        """Fill the targets with the rows at this place of the order and those after it."""
        if first != self._next:
            self._first.fill_(first)
        self._graph.replay()
        self._next = first + self._size
