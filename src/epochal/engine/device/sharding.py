"""Reads from the options how several processes share models."""

from __future__ import annotations

from typing import TYPE_CHECKING

from epochal.distributed.fsdp import Fsdp, Sharding
from epochal.distributed.strategy import Ddp, NoStrategy
from epochal.distributed.world import SingleProcess

if TYPE_CHECKING:
    import torch

    from epochal.distributed.strategy import Strategy
    from epochal.distributed.world import World
    from epochal.engine.interfaces.options import EngineOptions

_HALF_PRECISIONS = {"bf16": "bf16", "fp16": "fp16"}


def read_sharding(options: EngineOptions) -> Sharding:
    """How parameters are divided, without what depends on the names of modules."""
    return Sharding(
        precision=options.fsdp_precision or _HALF_PRECISIONS.get(options.precision),
        reduce=options.fsdp_reduce,
        is_resharded=options.fsdp_reshard,
        is_offloaded=options.fsdp_offload,
        tensor_parallel=options.tensor_parallel,
    )


def choose_strategy(options: EngineOptions, world: World, device: torch.device) -> Strategy:
    """How the processes of a run share its model; without a process group they share nothing."""
    if isinstance(world, SingleProcess):
        return NoStrategy()
    if options.strategy == "fsdp":
        return Fsdp(world, read_sharding(options), device)
    return Ddp(world, find_unused=options.find_unused)
