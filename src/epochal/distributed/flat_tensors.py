"""Exchanges many tensors in one collective: flattened into a vector per dtype and device."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch._utils import _flatten_dense_tensors, _unflatten_dense_tensors

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from torch import Tensor

    from epochal.distributed.world import World

_flatten: Any = _flatten_dense_tensors  # torch has no types here
_unflatten: Any = _unflatten_dense_tensors


@torch.no_grad()
def exchange_flat(tensors: Iterable[Tensor], exchange: Callable[[Tensor], Tensor]) -> None:
    """Overwrite tensors with what an exchange makes of all of them together."""
    kinds: dict[tuple[torch.dtype, torch.device], list[Tensor]] = {}
    for tensor in tensors:
        kinds.setdefault((tensor.dtype, tensor.device), []).append(tensor)
    for group in kinds.values():
        changed = exchange(_flatten(group))
        for tensor, own in zip(group, _unflatten(changed, group), strict=True):
            tensor.copy_(own)


def average_flat(tensors: Iterable[Tensor], world: World) -> None:
    """Overwrite tensors with their means over all processes."""
    exchange_flat(tensors, lambda flat: world.reduce(flat).div_(world.world_size))
