"""Kullback-Leibler divergence, for distillation."""

from __future__ import annotations

from typing import Annotated, final

from torch import Tensor, nn
from torch.nn import functional
from typing_extensions import override

from epochal.components.losses.shapes import require_same_shape
from epochal.config.bounds import Above


@final
class Kl(nn.Module):
    """The divergence of the target's distribution from that of the scores (logits).

    Classes are along dimension 1.

    Args:
        logits: Whether the target is logits too, such as a teacher's, not probabilities.
        temperature: Divides all logits; the result is multiplied by its square, which preserves
            the size of the gradients.
    """

    def __init__(
        self, *, logits: bool = False, temperature: Annotated[float, Above(0)] = 1.0
    ) -> None:
        super().__init__()
        self.logits = logits
        self.temperature = temperature

    @override
    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        """The sum over classes, and the mean over everything else."""
        require_same_shape("kl", input, target)
        logs = functional.log_softmax(input / self.temperature, dim=1)
        if self.logits:
            target = functional.softmax(target / self.temperature, dim=1)
        divergence = functional.kl_div(logs, target, reduction="none").sum(dim=1).mean()
        return divergence * self.temperature**2
