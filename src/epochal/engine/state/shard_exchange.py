"""Lets every process of a run write its part of a checkpoint that the main one commits."""

from __future__ import annotations

from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from epochal.checkpoint.checkpoint_folder import write_shard
from epochal.errors import CheckpointError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from torch import Tensor

    from epochal.distributed.world import World
    from epochal.records.folder.checkpoint_manifests import StoredFile

    Shards = Mapping[str, Tensor]


@contextmanager
def leading_write(
    world: World, shards: Shards
) -> Iterator[Callable[[Path], Mapping[str, StoredFile]]]:
    """A function for ``write_checkpoint`` that waits until each process has written its part.

    If the block ends without a call, the others are told that nothing is to be written.
    """
    is_called = False

    def add_files(staged: Path) -> Mapping[str, StoredFile]:
        nonlocal is_called
        is_called = True
        written: dict[str, StoredFile] = {}
        found = world.gather(_write(world.broadcast(str(staged)), world.rank, shards))
        for rank, outcome in enumerate(found):
            if isinstance(outcome, str):
                raise CheckpointError(f"rank {rank} cannot write its part: {outcome}")
            written |= outcome
        return written

    try:
        yield add_files
    finally:
        if not is_called:
            world.broadcast("")


def follow_write(world: World, shards: Shards) -> None:
    """Write the part of this process of the checkpoint that the main process writes, if it does."""
    staged = world.broadcast("")
    if staged:
        world.gather(_write(staged, world.rank, shards))


def _write(staged: str, rank: int, shards: Shards) -> Mapping[str, StoredFile] | str:
    """What was written, or why it could not be."""
    try:
        return write_shard(Path(staged), rank, shards)
    except Exception as error:  # the others wait for an answer
        return str(error) or repr(error)
