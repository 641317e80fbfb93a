"""Focal loss: cross entropy that looks away from what is easy already."""

from __future__ import annotations

from typing import Annotated, final

from torch import Tensor, nn
from torch.nn import functional
from typing_extensions import override

from epochal.components.losses.shapes import require_same_shape
from epochal.config.bounds import AtLeast, AtMost


@final
class Focal(nn.Module):
    """``(1 - p) ** gamma`` times the cross entropy, where ``p`` is what the target got.

    Targets that are class numbers compete with each other (softmax, classes along dimension 1).
    Targets that are floats of the same shape as the scores stand alone (sigmoid).

    Args:
        gamma: How much easy items are left out of account; 0 is plain cross entropy.
        alpha: Share of the positive targets against negative ones; only where they stand alone.
    """

    def __init__(
        self,
        *,
        gamma: Annotated[float, AtLeast(0)] = 2.0,
        alpha: Annotated[float, AtLeast(0), AtMost(1)] | None = None,
    ) -> None:
        super().__init__()
        self.gamma = gamma
        self.alpha = alpha

    @override
    def forward(self, input: Tensor, target: Tensor) -> tuple[Tensor, int]:
        """The mean over all targets, and how many these are."""
        if not target.is_floating_point():
            logs = functional.log_softmax(input, dim=1)
            log_p = logs.gather(1, target.unsqueeze(1)).squeeze(1)
            loss = -_share(1 - log_p.exp(), self.gamma) * log_p
            return loss.mean(), target.numel()
        require_same_shape("focal", input, target)
        entropy = functional.binary_cross_entropy_with_logits(input, target, reduction="none")
        p = input.sigmoid()
        loss = _share(target * (1 - p) + (1 - target) * p, self.gamma) * entropy
        if self.alpha is not None:
            loss = loss * (target * self.alpha + (1 - target) * (1 - self.alpha))
        return loss.mean(), len(target)


def _share(doubt: Tensor, gamma: float) -> Tensor:
    """A power of the doubt; where there is none, a root would have an infinite gradient."""
    return doubt.clamp(min=1e-8) ** gamma
