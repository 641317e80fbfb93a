"""Batch norm that counts the samples of all processes."""

from __future__ import annotations

import logging
from typing import Any

from torch import distributed, nn

logger = logging.getLogger(__name__)


def sync_batchnorm(model: nn.Module) -> nn.Module:
    """The model with statistics of batch norm over all processes; the same one if it is alone."""
    is_running = distributed.is_available() and distributed.is_initialized()
    if not is_running or distributed.get_world_size() == 1:
        logger.info("engine.sync_batchnorm: does nothing, since there is one process only")
        return model
    convert: Any = nn.SyncBatchNorm.convert_sync_batchnorm  # torch has no types here
    synced: nn.Module = convert(model)
    return synced
