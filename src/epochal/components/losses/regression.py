"""Regression losses: mean squared error, L1 and Huber."""

from __future__ import annotations

from typing import Annotated, final

from torch import Tensor, nn
from torch.nn import functional
from typing_extensions import override

from epochal.components.losses.shapes import require_same_shape
from epochal.config.bounds import Above


@final
class Mse(nn.Module):
    """The mean of squared differences."""

    @override
    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        """The mean over all elements."""
        require_same_shape("mse", input, target)
        return functional.mse_loss(input, target)


@final
class L1(nn.Module):
    """The mean of absolute differences."""

    @override
    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        """The mean over all elements."""
        require_same_shape("l1", input, target)
        return functional.l1_loss(input, target)


@final
class Huber(nn.Module):
    """Half the squared difference up to ``delta``, linear beyond it.

    Args:
        delta: The difference from which the loss is linear.
    """

    def __init__(self, *, delta: Annotated[float, Above(0)] = 1.0) -> None:
        super().__init__()
        self.delta = delta

    @override
    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        """The mean over all elements."""
        require_same_shape("huber", input, target)
        return functional.huber_loss(input, target, delta=self.delta)
