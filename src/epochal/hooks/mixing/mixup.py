"""Mixup: each training sample is a blend of two."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, final

import torch
from typing_extensions import override

from epochal.config.bounds import Above, AtLeast, AtMost
from epochal.engine.hook import Hook
from epochal.hooks.mixing.blend import Blend

if TYPE_CHECKING:
    from torch import Tensor

    from epochal.engine.run import Run


@final
class Mixup(Hook):
    """Blend each training sample with another one of its batch, and their targets as well.

    Targets become shares of classes, as ``cross_entropy`` takes them.

    Args:
        alpha: Shares come from Beta(alpha, alpha): small ones mix little.
        prob: How many of the batches are mixed.
        input: Where inputs are in a batch; the only tensor of floats if null.
        target: Where class numbers are; the only row of integers if null.
        classes: How many classes there are; by the task's ``meta["classes"]`` if null.
    """

    def __init__(
        self,
        *,
        alpha: Annotated[float, Above(0)] = 0.2,
        prob: Annotated[float, AtLeast(0), AtMost(1)] = 1.0,
        input: str | None = None,
        target: str | None = None,
        classes: Annotated[int, AtLeast(2)] | None = None,
    ) -> None:
        self._blend = Blend(
            "Mixup", _mix, alpha=alpha, prob=prob, input=input, target=target, classes=classes
        )

    @override
    def setup(self, run: Run) -> None:
        self._blend.install(run)

    @override
    def teardown(self, run: Run) -> None:
        self._blend.uninstall(run)


def _mix(inputs: Tensor, share: Tensor) -> tuple[Tensor, Tensor]:
    return torch.lerp(inputs.roll(1, 0), inputs, share), share
