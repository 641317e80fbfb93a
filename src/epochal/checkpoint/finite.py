"""Checks whether tensors are finite, with a single read from their device."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from collections.abc import Iterable

    from torch import Tensor


@torch.no_grad()
def are_finite(tensors: Iterable[Tensor]) -> bool:
    """Whether no value is NaN or infinite; integers and 8-bit floats count as finite."""
    groups: dict[tuple[torch.device, torch.dtype], list[Tensor]] = {}
    for one in tensors:
        plain = torch.view_as_real(one) if one.is_complex() else one
        if plain.is_floating_point() and plain.itemsize > 1 and plain.numel():
            groups.setdefault((plain.device, plain.dtype), []).append(plain.detach())
    # The largest magnitude of each tensor needs no memory, cannot overflow, and keeps NaN.
    largest = (torch.stack(torch._foreach_norm(group, math.inf)) for group in groups.values())
    return all(bool(one.isfinite().all()) for one in largest)
