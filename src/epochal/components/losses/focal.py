"""Focal loss: cross entropy that looks away from what is easy already."""

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
    """``(1 - p) ** gamma`` times the cross entropy, where ``p`` is what the target got.

    Classes lie along dimension 1. Targets are class numbers, or floats of the same shape as the
    scores.

    Args:
        gamma: How much easy items are left out of account; 0 is plain cross entropy.
        sigmoid: Let each class stand alone, as yes or no, instead of against the others.
        alpha: Share of yes against no; only where classes stand alone.
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
            what = "weighs yes against no, and classes that compete have neither"
            raise ConfigError(Problem("loss.alpha", what, hint="add sigmoid: true"))
        self.gamma = gamma
        self.sigmoid = sigmoid
        self.alpha = alpha

    @override
    def forward(self, input: Tensor, target: Tensor) -> tuple[Tensor, int]:
        """The mean over all targets, and how many these are."""
        if self.sigmoid:
            require_same_shape("focal", input, target)
            return self._alone(input, target.to(input.dtype)), len(target)
        logs = functional.log_softmax(input, dim=1)
        if target.is_floating_point():
            require_same_shape("focal", input, target)
            loss = -(target * _share(1 - logs.exp(), self.gamma) * logs).sum(dim=1)
        else:
            log_p = logs.gather(1, target.unsqueeze(1)).squeeze(1)
            loss = -_share(1 - log_p.exp(), self.gamma) * log_p
        return loss.mean(), loss.numel()

    def _alone(self, input: Tensor, target: Tensor) -> Tensor:
        entropy = functional.binary_cross_entropy_with_logits(input, target, reduction="none")
        p = input.sigmoid()
        loss = _share(target * (1 - p) + (1 - target) * p, self.gamma) * entropy
        if self.alpha is not None:
            loss = loss * (target * self.alpha + (1 - target) * (1 - self.alpha))
        return loss.mean()


def _share(doubt: Tensor, gamma: float) -> Tensor:
    """A power of the doubt; where there is none, a root would have an infinite gradient."""
    return doubt.clamp(min=1e-8) ** gamma
