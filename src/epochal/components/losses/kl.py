"""Kullback-Leibler divergence: how far scores are from a wanted distribution."""

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

    Classes lie along dimension 1.

    Args:
        logits: Whether the target holds scores too, as those of a teacher, not probabilities.
        temperature: Divides all scores; the result is multiplied by its square, so that
            gradients keep their size.
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
