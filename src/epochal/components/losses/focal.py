"""Focal loss: cross entropy that gives easy items less weight."""

from __future__ import annotations

from typing import Annotated, final

from torch import Tensor, nn
from torch.nn import functional
from typing_extensions import override

from epochal.components.losses.shapes import require_same_shape
from epochal.config.bounds import AtLeast, AtMost
from epochal.errors import ConfigError, Problem


@final
class Focal(nn.Module):
    """``(1 - p) ** gamma`` times the cross entropy, where ``p`` is the target's probability.

    Classes are along dimension 1. Targets are class numbers, or floats of the same shape as the
    scores.

    Args:
        gamma: How strongly easy items are down-weighted; 0 is plain cross entropy.
        sigmoid: Treat each class as an independent binary problem (sigmoid, not softmax).
        alpha: Weight of positive targets, 1 - alpha of negative ones; only with ``sigmoid``.
    """

    def __init__(
        self,
        *,
        gamma: Annotated[float, AtLeast(0)] = 2.0,
        sigmoid: bool = False,
        alpha: Annotated[float, AtLeast(0), AtMost(1)] | None = None,
    ) -> None:
        super().__init__()
        if alpha is not None and not sigmoid:
            what = "weights positive and negative targets, which only sigmoid has"
            raise ConfigError(Problem("loss.alpha", what, hint="add sigmoid: true"))
        self.gamma = gamma
        self.sigmoid = sigmoid
        self.alpha = alpha

    @override
    def forward(self, input: Tensor, target: Tensor) -> tuple[Tensor, int]:
        """The mean over all targets, and their number."""
        if self.sigmoid:
            require_same_shape("focal", input, target)
            return self._binary(input, target.to(input.dtype)), len(target)
        logs = functional.log_softmax(input, dim=1)
        if target.is_floating_point():
            require_same_shape("focal", input, target)
            loss = -(target * _focus(1 - logs.exp(), self.gamma) * logs).sum(dim=1)
        else:
            log_p = logs.gather(1, target.unsqueeze(1)).squeeze(1)
            loss = -_focus(1 - log_p.exp(), self.gamma) * log_p
        return loss.mean(), loss.numel()

    def _binary(self, input: Tensor, target: Tensor) -> Tensor:
        entropy = functional.binary_cross_entropy_with_logits(input, target, reduction="none")
        p = input.sigmoid()
        loss = _focus(target * (1 - p) + (1 - target) * p, self.gamma) * entropy
        if self.alpha is not None:
            loss = loss * (target * self.alpha + (1 - target) * (1 - self.alpha))
        return loss.mean()


def _focus(error: Tensor, gamma: float) -> Tensor:
    """The factor of each item; clamped, because roots have an infinite gradient at 0."""
    return error.clamp(min=1e-8) ** gamma
