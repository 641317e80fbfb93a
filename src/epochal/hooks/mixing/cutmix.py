"""CutMix: each training image has a rectangle of another one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, final

import torch
from typing_extensions import override

from epochal.config.bounds import Above, AtLeast, AtMost
from epochal.engine.hook import Hook
from epochal.errors import TaskError
from epochal.hooks.mixing.blend import Blend

if TYPE_CHECKING:
    from torch import Tensor

    from epochal.engine.run import Run


@final
class CutMix(Hook):
    """Paste a rectangle of another image of the batch into each one, and share the target by area.

    Targets become shares of classes, as ``cross_entropy`` takes them.

    Args:
        alpha: The area that stays comes from Beta(alpha, alpha).
        prob: How many of the batches are mixed.
        input: Where images (batch, ..., height, width) are; the only tensor of floats if null.
        target: Where class numbers are; the only row of integers if null.
        classes: How many classes there are; by the task's ``meta["classes"]`` if null.
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
        self._blend = Blend(
            "CutMix", _mix, alpha=alpha, prob=prob, input=input, target=target, classes=classes
        )

    @override
    def setup(self, run: Run) -> None:
        self._blend.install(run)

    @override
    def teardown(self, run: Run) -> None:
        self._blend.uninstall(run)


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
    kept = 1 - mask.to(share.dtype).mean()  # as it was cut, at the border too
    return torch.where(mask, images.roll(1, 0), images), kept


def _inside(size: int, length: Tensor, images: Tensor) -> Tensor:
    """Which places of one side lie in the rectangle, whose middle may be anywhere."""
    places = torch.arange(size, device=images.device) + 0.5
    middle = torch.rand((), device=images.device) * size
    return (places - middle).abs() < length.float() * size / 2
