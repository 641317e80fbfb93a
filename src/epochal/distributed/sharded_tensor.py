"""Tensors of which each process has a part: that part, and its place in the whole.

``torch.distributed.tensor`` takes seconds to import, so it is only imported where such a tensor
exists.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

if TYPE_CHECKING:
    from collections.abc import Sequence


def is_sharded(value: object) -> bool:
    """Whether a value is a tensor of which this process has a part."""
    return isinstance(value, Tensor) and hasattr(value, "device_mesh")


@torch.no_grad()
def get_own_part(tensor: Tensor) -> Tensor:
    """The part of this process, which shares its memory; a plain tensor itself."""
    if type(tensor) is Tensor or not is_sharded(tensor):
        return tensor
    sharded: Any = tensor
    own: Tensor = sharded.to_local()  # without a copy, since gradients are off
    return own


def get_own_place(tensor: Tensor) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Where the part of this process begins in the whole tensor, and its shape."""
    from torch.distributed.tensor._utils import compute_local_shape_and_global_offset

    sharded: Any = tensor
    shape, start = compute_local_shape_and_global_offset(
        sharded.shape, sharded.device_mesh, sharded.placements
    )
    return tuple(start), tuple(shape)


def count_parts(tensor: Tensor) -> int:
    """Into how many different parts a tensor is divided; 1 for a plain one."""
    if not is_sharded(tensor):
        return 1
    sharded: Any = tensor
    pairs = zip(sharded.placements, sharded.device_mesh.shape, strict=True)
    return math.prod(size for placement, size in pairs if not placement.is_replicate())


def has_first_copy(tensor: Tensor) -> bool:
    """Whether this process is the first of those that have the same part."""
    from torch import distributed

    sharded: Any = tensor
    mesh = sharded.device_mesh
    ranks = mesh.mesh
    for index, placement in enumerate(sharded.placements):
        if not placement.is_replicate():
            place = mesh.get_local_rank(index)
            ranks = ranks.narrow(index, place, 1)
    return distributed.get_rank() == int(ranks.min())


def wrap_part(part: Tensor, like: Tensor) -> Tensor:
    """A sharded tensor of this part, divided like another one of the same shape."""
    from torch.distributed.tensor import DTensor

    model: Any = like
    own = get_own_part(like)
    wrapped: Tensor = DTensor.from_local(
        part.to(own.device),
        model.device_mesh,
        model.placements,
        run_check=False,
        shape=like.shape,
        stride=like.stride(),
    )
    return wrapped


def replicate(whole: Tensor, like: Tensor) -> Tensor:
    """A tensor that every process has as a whole, for computations with a sharded one."""
    from torch.distributed.tensor import DTensor, Replicate

    model: Any = like
    mesh = model.device_mesh
    wrapped: Tensor = DTensor.from_local(
        whole.to(get_own_part(like).device), mesh, [Replicate()] * mesh.ndim, run_check=False
    )
    return wrapped


def gather_whole(tensor: Tensor) -> Tensor:
    """The whole tensor; all processes must call it together."""
    sharded: Any = tensor
    whole: Tensor = sharded.detach().full_tensor() if is_sharded(tensor) else tensor
    return whole


def slices_of(start: Sequence[int], shape: Sequence[int]) -> tuple[slice, ...]:
    """The index of a part in the whole tensor."""
    return tuple(slice(a, a + n) for a, n in zip(start, shape, strict=True))
