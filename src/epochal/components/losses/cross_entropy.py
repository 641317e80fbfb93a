"""Cross entropy with class numbers or class probabilities."""

from __future__ import annotations

from typing import Annotated, final

import torch
from torch import Tensor, nn
from torch.nn import functional
from typing_extensions import override

from epochal.config.bounds import AtLeast, Below

_IGNORED = -100  # torch's default of ignore_index


@final
class CrossEntropy(nn.Module):
    """Cross entropy of scores (logits) with class numbers, or with probabilities of classes.

    Classes are along dimension 1. Each element of dense targets, such as (batch, height, width),
    is an item.

    Args:
        label_smoothing: Share of the target that is spread over all classes.
        class_weights: Weight of each class in the mean.
        ignore_index: Targets with this number are ignored.
    """

    class_weights: Tensor | None

    def __init__(
        self,
        *,
        label_smoothing: Annotated[float, AtLeast(0), Below(1)] = 0.0,
        class_weights: list[float] | None = None,
        ignore_index: int | None = None,
    ) -> None:
        super().__init__()
        self.label_smoothing = label_smoothing
        self.ignore_index = ignore_index
        weights = None if class_weights is None else torch.tensor(class_weights)
        self.register_buffer("class_weights", weights, persistent=False)

    @override
    def forward(self, input: Tensor, target: Tensor) -> tuple[Tensor, int | Tensor]:
        """The mean over all targets, and their number, or the sum of their class weights."""
        if target.is_floating_point():
            return self._mean(input, target), target.numel() // target.shape[1]
        if self.ignore_index is None and self.class_weights is None:
            return self._mean(input, target), target.numel()
        ignored = _IGNORED if self.ignore_index is None else self.ignore_index
        count = self._sum(target, target != ignored)
        if self.ignore_index is None and not self.label_smoothing:
            return self._mean(input, target), count
        # The mean of torch would wait for the device to count the targets.
        total = functional.cross_entropy(
            input,
            target,
            self.class_weights,
            ignore_index=ignored,
            reduction="sum",
            label_smoothing=self.label_smoothing,
        )
        # A batch with only ignored targets has loss 0 and zero gradients.
        return total / (count + (count == 0)), count

    def _mean(self, input: Tensor, target: Tensor) -> Tensor:
        return functional.cross_entropy(
            input, target, self.class_weights, label_smoothing=self.label_smoothing
        )

    def _sum(self, target: Tensor, counted: Tensor) -> Tensor:
        """The sum of the weights of the targets, so that microbatches add up to the batch."""
        if self.class_weights is None:
            return counted.sum()
        return (self.class_weights[target.where(counted, 0)] * counted).sum()
