"""Divides the parameters of a model between processes, by patterns of module names."""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import TYPE_CHECKING

from epochal.distributed.fsdp import shard_model
from epochal.engine.device.sharding import read_sharding
from epochal.engine.step.recompute import find_modules

if TYPE_CHECKING:
    import torch
    from torch import nn

    from epochal.distributed.world import World
    from epochal.engine.interfaces.options import EngineOptions

logger = logging.getLogger(__name__)


def shard_by_patterns(
    model: nn.Module, options: EngineOptions, device: torch.device, world: World
) -> nn.Module:
    """The model with its parameters divided as ``fsdp_wrap`` and ``tensor_plan`` say."""
    wrapped = find_modules(model, options.fsdp_wrap, "engine.fsdp_wrap")
    divided = {
        name: how
        for pattern, how in options.tensor_plan.items()
        for name in find_modules(model, [pattern], "engine.tensor_plan")
    }
    if not wrapped and not world.is_single:
        logger.warning(
            "engine.fsdp_wrap: is empty, so each forward pass gathers the whole model at once; "
            "write for example fsdp_wrap: [blocks.*]"
        )
    sharding = replace(read_sharding(options), wrapped=tuple(wrapped.values()), divided=divided)
    return shard_model(model, sharding, device, world)
