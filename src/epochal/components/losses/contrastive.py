"""Contrastive loss (InfoNCE) between two batches of embeddings."""

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
    """Symmetric InfoNCE, as in CLIP: row ``i`` of one input matches row ``i`` of the other.

    Embeddings are normalised; the scores are their dot products divided by the temperature.
    The loss is the mean of the cross entropies of both directions.

    Args:
        temperature: Divides the scores; a model with a learned scale passes it as ``scale``.
    """

    def __init__(self, *, temperature: Annotated[float, Above(0)] = 0.07) -> None:
        super().__init__()
        self.temperature = temperature

    @override
    def forward(
        self, first: Tensor, second: Tensor, scale: Tensor | None = None
    ) -> tuple[Tensor, int]:
        """The mean over both directions, and the number of pairs."""
        require_same_shape("contrastive", first, second)
        first, second = functional.normalize(first, dim=-1), functional.normalize(second, dim=-1)
        products = first @ second.T  # (batch, batch)
        scores = products / self.temperature if scale is None else products * scale
        partners = torch.arange(len(first), device=first.device)
        forward = functional.cross_entropy(scores, partners)
        backward = functional.cross_entropy(scores.T, partners)
        return (forward + backward) / 2, len(first)
