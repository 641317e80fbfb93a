"""Contrastive loss: each sample should recognise its own partner among all of the batch."""

from __future__ import annotations

from typing import Annotated, final

import torch
from torch import Tensor, nn
from torch.nn import functional
from typing_extensions import override

from epochal.components.losses.shapes import require_same_shape
from epochal.config.bounds import Above


@final
class Contrastive(nn.Module):
    """Symmetric InfoNCE, as image and text are matched: row ``i`` of both belongs together.

    Embeddings are normalised; their products over the temperature are scores, and the cross
    entropy with the right partner is the mean of both directions.

    Args:
        temperature: Divides the scores; a model that learns a scale gives it as ``scale``.
    """

    def __init__(self, *, temperature: Annotated[float, Above(0)] = 0.07) -> None:
        super().__init__()
        self.temperature = temperature

    @override
    def forward(
        self, first: Tensor, second: Tensor, scale: Tensor | None = None
    ) -> tuple[Tensor, int]:
        """The mean over both directions, and how many pairs there are."""
        require_same_shape("contrastive", first, second)
        first, second = functional.normalize(first, dim=-1), functional.normalize(second, dim=-1)
        products = first @ second.T  # (batch, batch)
        scores = products / self.temperature if scale is None else products * scale
        partners = torch.arange(len(first), device=first.device)
        there = functional.cross_entropy(scores, partners)
        back = functional.cross_entropy(scores.T, partners)
        return (there + back) / 2, len(first)
