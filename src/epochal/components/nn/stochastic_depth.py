"""Stochastic depth: drops the branch of a residual block for some samples."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, final

from torch import nn
from typing_extensions import override

from epochal.config.bounds import AtLeast, Below
from epochal.errors import ConfigError, Problem

if TYPE_CHECKING:
    from torch import Tensor


@final
class StochasticDepth(nn.Module):
    """Drops the branches of some samples in training: ``x + self.drop(self.branch(x))``.

    The other branches are scaled by ``1 / (1 - p)``, which preserves the mean; evaluation
    changes nothing.

    Args:
        p: Share of samples whose branch is dropped.
        per_sample: Decide for each sample, not for the whole batch.
    """

    def __init__(
        self, p: Annotated[float, AtLeast(0), Below(1)] = 0.1, *, per_sample: bool = True
    ) -> None:
        super().__init__()
        if not 0 <= p < 1:
            what = f"must be at least 0 and below 1, got {p!r}"
            raise ConfigError(Problem("StochasticDepth.p", what, hint="write for example 0.1"))
        self.p = p
        self.per_sample = per_sample

    @override
    def forward(self, x: Tensor) -> Tensor:
        """The branch, or zeros."""
        if not self.training or self.p == 0:
            return x
        count = len(x) if self.per_sample else 1
        mask = x.new_empty((count, *[1] * (x.dim() - 1))).bernoulli_(1 - self.p)
        return x * mask.div_(1 - self.p)

    @override
    def extra_repr(self) -> str:
        return f"p={self.p}" if self.per_sample else f"p={self.p}, per_sample=False"
