"""Where gathered batches go: into tensors that a captured step reads, or into new ones."""

from __future__ import annotations

from typing import TYPE_CHECKING, final

import torch

from epochal.engine.next_rows import NextRows

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from torch import Tensor

    from epochal.engine.task import Batch

    Pack = Callable[[Iterable[Tensor]], Batch]


@final
class Aim:
    """The tensors that the next batches go into, if they fit."""

    def __init__(self) -> None:
        self._targets: list[Tensor] = []
        self._size = -1
        self._next_rows: NextRows | None = None

    def at(self, targets: list[Tensor]) -> None:
        """Let batches of that size go into these tensors; none: all batches are new."""
        self._targets = targets
        self._size = len(targets[0]) if targets and targets[0].ndim else -1
        self.let_go()

    def let_go(self) -> None:
        """Keep nothing of the data that were gathered from."""
        self._next_rows = None

    def batches(
        self,
        columns: tuple[Tensor, ...],
        pack: Pack,
        order: Tensor,
        parts: Iterable[Tensor],
        select: Callable[[Tensor], Batch],
    ) -> Iterator[Batch]:
        """Gather the rows of a pass.

        Args:
            columns: Data on the device.
            pack: Makes a batch out of its tensors.
            order: Of the rows.
            parts: Of the order, one for each batch.
            select: Gathers a batch that does not go into the targets.
        """
        seen: list[Tensor] = []
        fill: Callable[[int, Tensor], None] | None = None
        first = 0
        for indices in parts:
            if self._targets is not seen:
                seen = self._targets
                fill = self._filler(columns, order) if _are_alike(columns, seen) else None
            if fill is None or len(indices) != self._size:
                yield select(indices)
            else:
                fill(first, indices)
                yield pack(seen)
            first += len(indices)

    def _filler(self, columns: tuple[Tensor, ...], order: Tensor) -> Callable[[int, Tensor], None]:
        """What puts rows into the targets, given their first place in the order and themselves."""
        targets = self._targets
        if order.device.type != "cuda":

            def fill(_first: int, indices: Tensor) -> None:
                for column, target in zip(columns, targets, strict=True):
                    torch.index_select(column, 0, indices, out=target)

            return fill

        known = self._next_rows
        if known is None or known.columns is not columns:
            known = self._next_rows = NextRows(columns, targets, len(columns[0]))
        known.begin(order)
        return known.take


def _are_alike(columns: tuple[Tensor, ...], targets: list[Tensor]) -> bool:
    """Whether rows of the columns are such as the targets hold, which torch would resize else."""
    return [(column.shape[1:], column.dtype) for column in columns] == [
        (target.shape[1:], target.dtype) for target in targets
    ]
