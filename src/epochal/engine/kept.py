"""Buffers of a model, such as the statistics of batch norm, as they were before a step."""

from __future__ import annotations

from typing import TYPE_CHECKING, final

import torch
from torch import Tensor

if TYPE_CHECKING:
    from collections.abc import Iterable


@final
class KeptBuffers:
    """Puts buffers back when the step that changed them was left out.

    Args:
        buffers: Those of a model.
        device: Where the run works; what lies elsewhere is left alone.
    """

    def __init__(self, buffers: Iterable[Tensor], device: torch.device) -> None:
        kinds: dict[torch.dtype, list[Tensor]] = {}
        for buffer in buffers:
            if buffer.device == device and buffer.numel():
                kinds.setdefault(buffer.dtype, []).append(buffer.detach())
        # One vector for each dtype: a kernel for every buffer would cost more than the copies.
        self._kinds = [(alike, _join(alike)) for alike in kinds.values()]
        self._is_kept = False

    @torch.no_grad()
    def keep(self) -> None:
        """Remember the buffers as they are."""
        for alike, vector in self._kinds:
            vector.copy_(_join(alike))
        self._is_kept = True

    @torch.no_grad()
    def put_back(self, skipped: Tensor) -> None:
        """Make the buffers what they were if a number on the device is 1, which nobody reads."""
        # A step of somebody's own may have kept nothing.
        for alike, vector in self._kinds if self._is_kept else ():
            chosen = torch.where(skipped != 0, vector, _join(alike))
            parts = torch.split(chosen, [buffer.numel() for buffer in alike])
            torch._foreach_copy_(
                alike, [part.view(buffer.shape) for part, buffer in zip(parts, alike, strict=True)]
            )
        self._is_kept = False


def _join(buffers: list[Tensor]) -> Tensor:
    return torch.cat([buffer.reshape(-1) for buffer in buffers])
