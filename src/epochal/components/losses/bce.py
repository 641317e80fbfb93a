"""Binary cross entropy."""

from __future__ import annotations

from typing import final

import torch
from torch import Tensor, nn
from torch.nn import functional
from typing_extensions import override

from epochal.components.losses.shapes import require_same_shape


@final
class Bce(nn.Module):
    """Binary cross entropy of scores (logits) with targets between 0 and 1, of the same shape.

    Args:
        pos_weight: Weight of positive targets, for each class along the last dimension.
    """

    pos_weight: Tensor | None

    def __init__(self, *, pos_weight: list[float] | None = None) -> None:
        super().__init__()
        weight = None if pos_weight is None else torch.tensor(pos_weight)
        self.register_buffer("pos_weight", weight, persistent=False)

    @override
    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        """The mean over all elements."""
        require_same_shape("bce", input, target)
        return functional.binary_cross_entropy_with_logits(
            input, target.to(input.dtype), pos_weight=self.pos_weight
        )
