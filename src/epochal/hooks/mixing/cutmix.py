"""CutMix: pastes a rectangle of another image into each training image."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, final

import torch
from typing_extensions import override

from epochal.config.bounds import Above, AtLeast, AtMost
from epochal.engine.interfaces.hook import Hook
from epochal.errors import TaskError
from epochal.hooks.mixing.batch_mixer import BatchMixer

if TYPE_CHECKING:
    from torch import Tensor

    from epochal.engine.run import Run


@final
class CutMix(Hook):
    """Pastes a rectangle of another image of the batch into each one; mixes targets by area.

    Targets become class probabilities, as ``cross_entropy`` accepts them.

    Args:
        alpha: The kept share of the area is drawn from Beta(alpha, alpha).
        prob: Share of the batches that are mixed.
        input: Name of the images (batch, ..., height, width); the only float tensor if null.
        target: Name of the class indices; the only 1-D integer tensor if null.
        classes: Number of classes; from the task's ``meta["classes"]`` if null.
    """

    def __init__(
        self,
        *,
        alpha: Annotated[float, Above(0)] = 1.0,
        prob: Annotated[float, AtLeast(0), AtMost(1)] = 1.0,
        input: str | None = None,
        target: str | None = None,
        classes: Annotated[int, AtLeast(2)] | None = None,
    ) -> None:
        self._mixer = BatchMixer(
            "CutMix", _mix, alpha=alpha, prob=prob, input=input, target=target, classes=classes
        )

    @override
    def setup(self, run: Run) -> None:
        self._mixer.install(run)

    @override
    def teardown(self, run: Run) -> None:
        self._mixer.uninstall(run)


def _mix(images: Tensor, share: Tensor) -> tuple[Tensor, Tensor]:
    if images.dim() < 3:
        raise TaskError(
            f"CutMix: needs images (batch, ..., height, width), got shape {tuple(images.shape)}\n"
            "  use Mixup, or name the images with `input:`"
        )
    length = (1 - share).clamp(min=0).sqrt()
    rows = _inside(images.shape[-2], length, images)
    columns = _inside(images.shape[-1], length, images)
    mask = rows.unsqueeze(1) & columns
    kept = 1 - mask.to(share.dtype).mean()  # the actual area, also where the border cuts it
    return torch.where(mask, images.roll(1, 0), images), kept


def _inside(size: int, length: Tensor, images: Tensor) -> Tensor:
    """A mask of the indices inside the rectangle along one side; its centre is random."""
    indices = torch.arange(size, device=images.device) + 0.5
    centre = torch.rand((), device=images.device) * size
    return (indices - centre).abs() < length.float() * size / 2
