"""Finds processes of a run that were killed on this machine before their connections fail."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Any, final

from epochal.records.layout.process import (
    describe_process,
    is_owner_gone,
    shares_process_ids,
)

if TYPE_CHECKING:
    from torch.distributed.distributed_c10d import Store


@final
class RankProcesses:
    """The processes of a run as the operating system knows them, published in a store."""

    def __init__(self, store: Store, world_size: int) -> None:
        self._store = store
        self._unknown = set(range(world_size))
        self._local: dict[int, dict[str, Any]] = {}

    def publish(self, rank: int) -> None:
        """Tell the others which process this is."""
        self._store.set(f"process/{rank}", json.dumps(describe_process(os.getpid())))

    def leave(self, rank: int) -> None:
        """Tell the others that this process may end."""
        self._store.set(f"left/{rank}", "1")

    def has_left(self, rank: int) -> bool:
        """Whether a process may end."""
        return self._store.check([f"left/{rank}"])

    def find_killed(self) -> int | None:
        """The first rank whose process died without leaving the run; None for other machines.

        Its launcher ends the others with SIGTERM, as a scheduler that preempts the run would.
        """
        for rank in self._unknown.copy():
            if self._store.check([f"process/{rank}"]):
                self._unknown.remove(rank)
                owner = json.loads(self._store.get(f"process/{rank}"))
                if shares_process_ids(owner):
                    self._local[rank] = owner
        gone = (rank for rank, owner in self._local.items() if is_owner_gone(owner))
        return next((rank for rank in gone if not self.has_left(rank)), None)
