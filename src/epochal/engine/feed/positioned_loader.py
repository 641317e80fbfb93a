"""Loaders that open a pass at any position themselves; the chains of ``epochal.data`` do."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, runtime_checkable

if TYPE_CHECKING:
    from collections.abc import Iterator

    from epochal.engine.feed.rank_shares import RankShare
    from epochal.engine.feed.sampling_order import DataPass
    from epochal.engine.interfaces.task import Batch
    from epochal.engine.process.worker_reads import ReadLog


@runtime_checkable
class PositionedLoader(Protocol):
    """A loader whose batches depend on the pass and their position only."""

    read_log: ReadLog | None
    """What its workers read, if it has any and was opened."""

    def find_division_problem(self, share: RankShare | None) -> str:
        """Why it cannot divide its data between processes itself; empty if it can or does not."""

    def open_pass(self, one_pass: DataPass) -> Iterator[Batch]:
        """The batches of a pass from its start on, or the share of this process.

        Global random generators do not change.
        """
