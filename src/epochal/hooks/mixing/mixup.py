"""Mixup: each training sample is a weighted mean of two."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, final

import torch
from typing_extensions import override

from epochal.config.bounds import Above, AtLeast, AtMost
from epochal.engine.interfaces.hook import Hook
from epochal.hooks.mixing.batch_mixer import BatchMixer

if TYPE_CHECKING:
    from torch import Tensor

    from epochal.engine.run import Run


@final
class Mixup(Hook):
    """Mixes each training sample and its target with another one of the batch.

    Targets become class probabilities, as ``cross_entropy`` accepts them.

    Args:
        alpha: Shares are drawn from Beta(alpha, alpha); small values mix little.
        prob: Share of the batches that are mixed.
        input: Name of the inputs in a batch; the only float tensor if null.
        target: Name of the class indices; the only 1-D integer tensor if null.
        classes: Number of classes; from the task's ``meta["classes"]`` if null.
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
        self._mixer = BatchMixer(
            "Mixup", _mix, alpha=alpha, prob=prob, input=input, target=target, classes=classes
        )

    @override
    def setup(self, run: Run) -> None:
        self._mixer.install(run)

    @override
    def teardown(self, run: Run) -> None:
        self._mixer.uninstall(run)


def _mix(inputs: Tensor, share: Tensor) -> tuple[Tensor, Tensor]:
    return torch.lerp(inputs.roll(1, 0), inputs, share), share
