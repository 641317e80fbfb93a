"""Dice loss for segmentation."""

from __future__ import annotations

from typing import Annotated, final

import torch
from torch import Tensor, nn
from typing_extensions import override

from epochal.components.losses.shapes import require_same_shape
from epochal.config.bounds import AtLeast


@final
class Dice(nn.Module):
    """One minus the soft Dice coefficient, the mean over samples and classes.

    Targets that are class numbers, (batch, ...), use the softmax of scores (batch, classes, ...).
    Targets of the same shape as the scores are masks and use the sigmoid.

    Args:
        smooth: Added to numerator and denominator, so that an empty region predicted as empty
            has loss 0.
    """

    def __init__(self, *, smooth: Annotated[float, AtLeast(0)] = 1.0) -> None:
        super().__init__()
        self.smooth = smooth

    @override
    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        """The mean over samples and classes."""
        if target.dim() == input.dim() - 1:
            shares = input.softmax(dim=1)
            classes = torch.arange(input.shape[1], device=input.device)
            wanted = target.unsqueeze(1) == classes.view(1, -1, *[1] * (target.dim() - 1))
        else:
            require_same_shape("dice", input, target)
            shares, wanted = input.sigmoid(), target
        wanted = wanted.to(shares.dtype).flatten(2)  # (batch, classes, points)
        shares = shares.flatten(2)
        overlap = 2 * (shares * wanted).sum(dim=2) + self.smooth
        return (1 - overlap / (shares.sum(dim=2) + wanted.sum(dim=2) + self.smooth)).mean()
