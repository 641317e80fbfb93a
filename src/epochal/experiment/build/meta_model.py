"""Builds a model for fsdp on the meta device; the main process sends the weights later."""

from __future__ import annotations

import gc
import logging
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from epochal.engine.device.seeding import derive_seed, seeded

if TYPE_CHECKING:
    from collections.abc import Callable

    from epochal.experiment.build.builder import Assembly

logger = logging.getLogger(__name__)


def build_without_values(build: Callable[[], nn.Module], assembly: Assembly) -> nn.Module:
    """The model, on the meta device if it is built for fsdp in another process than the main one.

    A model that needs values while it is built, or keeps tensors that are neither parameters nor
    buffers, is built as usual.
    """
    is_sent = assembly.args.engine.strategy == "fsdp" and not assembly.world.is_main
    if not is_sent or "model" in assembly.given.parts:
        return build()
    try:
        with torch.device("meta"):
            model = build()
        if not _has_stray_tensor(model):
            return model
        why = "it has tensors that are neither parameters nor buffers"
    except Exception as error:  # a mistake of the user is raised again below
        why = f"{type(error).__name__}: {error}"
    logger.info(
        "model: built completely in this process, since the meta device cannot be used: %s", why
    )
    with seeded(derive_seed(assembly.seed, "model")):
        return build()


def _has_stray_tensor(model: nn.Module) -> bool:
    """Whether the model has a tensor on the meta device that would get no values."""
    gc.collect()
    own = {id(one) for one in (*model.parameters(), *model.buffers())}
    found = (one for one in gc.get_objects() if issubclass(type(one), Tensor))
    return any(one.is_meta and id(one) not in own for one in found)
