"""Processes connected by torch.distributed: the group for objects."""

from __future__ import annotations

from torch import distributed

from epochal.distributed.environment import RankEnvironment
from epochal.distributed.process_group import ProcessGroup

ONLY = RankEnvironment(rank=0, local_rank=0, world_size=1, local_world_size=1)


def test_objects_are_exchanged_after_other_code_made_the_process_group_again() -> None:
    for backend in ("cpu:gloo", "cpu:gloo", "gloo"):  # all but the last need a group for objects
        store = distributed.HashStore()
        distributed.init_process_group(backend, store=store, rank=0, world_size=1)
        try:
            assert ProcessGroup(ONLY).broadcast("here") == "here", backend
            assert ProcessGroup(ONLY).collect("here") == ["here"], backend
            assert ProcessGroup(ONLY).gather("here") == ["here"], backend
        finally:
            distributed.destroy_process_group()
