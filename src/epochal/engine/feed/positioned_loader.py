"""Loaders that open a pass at any position themselves; the chains of ``epochal.data`` do."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, runtime_checkable

if TYPE_CHECKING:
    from collections.abc import Iterator

    from epochal.engine.feed.sampling_order import DataPass
    from epochal.engine.interfaces.task import Batch
    from epochal.engine.process.read_log import ReadLog


@runtime_checkable
class PositionedLoader(Protocol):
    """A loader whose batches depend on the pass and their position only."""

    read_log: ReadLog | None
    """What its workers read, if it has any and was opened."""

    @property
    def divides_by_rank(self) -> bool:
        """Whether its data are divided between processes already."""

    def open_pass(self, one_pass: DataPass) -> Iterator[Batch]:
        """The batches of a pass from its start on, or the share of this process.

        Global random generators do not change.
        """
