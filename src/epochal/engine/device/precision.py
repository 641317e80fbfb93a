"""The number format in which a run computes: autocast, tf32 and the dtype of weights."""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import partial
from typing import TYPE_CHECKING, Any, final

import torch
from torch import distributed, nn

from epochal.errors import ConfigError, Problem

if TYPE_CHECKING:
    from collections.abc import Iterator

logger = logging.getLogger(__name__)

Autocast = Callable[[], AbstractContextManager[Any]]  # torch.autocast returns itself

_AUTOCAST_DTYPES = {"bf16": torch.bfloat16, "fp16": torch.float16}


@final
class Precision:
    """``engine.precision``, one of fp32, tf32, bf16, fp16 and fp64: autocast, loss scaling, dtype.

    ``dtype`` is that of weights and of floats in batches, if the config has one.
    """

    def __init__(
        self,
        name: str = "fp32",
        device: torch.device | str = "cpu",
        dtype: torch.dtype | None = None,
    ) -> None:
        self.name = name
        self.dtype = resolve_dtype(name, dtype)
        """Of weights and of floats in batches; None does not cast."""

        self.autocast: Autocast | None = None
        """Makes an autocast context; None if there is none."""

        self.is_scaled = name == "fp16"
        """Whether the loss is scaled, so that small gradients do not become 0."""

        if name in _AUTOCAST_DTYPES:
            kind = torch.device(device).type
            self.autocast = partial(torch.autocast, kind, dtype=_AUTOCAST_DTYPES[name])

    def context(self) -> AbstractContextManager[Any]:
        """The context for forward pass and loss."""
        return nullcontext() if self.autocast is None else self.autocast()


def resolve_dtype(name: str, dtype: torch.dtype | None) -> torch.dtype | None:
    """The dtype of the weights under a precision; refuses a config that contradicts it."""
    if name == "fp64":
        if dtype not in (None, torch.float64):
            _refuse(name, dtype, "remove model.dtype, or write float64")
        return torch.float64
    if dtype == torch.float64 and name != "fp32":
        _refuse(name, dtype, "remove engine.precision, or compute with model.dtype: float32")
    return dtype


@contextmanager
def allowing_tf32(name: str) -> Iterator[None]:
    """Allow TF32 in a block, if the precision is tf32."""
    if name != "tf32":
        yield
        return
    cudnn = torch.backends.cudnn
    previous = torch.get_float32_matmul_precision(), cudnn.allow_tf32
    torch.set_float32_matmul_precision("high")
    cudnn.allow_tf32 = True
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(previous[0])
        cudnn.allow_tf32 = previous[1]


def _refuse(name: str, dtype: torch.dtype | None, hint: str) -> None:
    what = f"{name!r} contradicts model.dtype {str(dtype).removeprefix('torch.')!r}"
    raise ConfigError(Problem("engine.precision", what, hint=hint))


def sync_batchnorm(model: nn.Module, device: torch.device) -> nn.Module:
    """The model with synchronised batch norm; unchanged if there is one process."""
    is_running = distributed.is_available() and distributed.is_initialized()
    if not is_running or distributed.get_world_size() == 1:
        logger.info("engine.sync_batchnorm: does nothing, since there is one process only")
        return model
    convert: Any = nn.SyncBatchNorm.convert_sync_batchnorm  # torch has no types here
    synced: nn.Module = convert(model)
    has_synced = any(isinstance(one, nn.SyncBatchNorm) for one in synced.modules())
    if device.type == "cpu" and has_synced:
        what = "torch synchronises batch norm on GPUs only, and the device is cpu"
        hint = "remove it, or use GroupNorm or LayerNorm, which need no other samples"
        raise ConfigError(Problem("engine.sync_batchnorm", what, hint=hint))
    return synced
