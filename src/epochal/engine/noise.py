"""Noise on gradients, which fades with the steps."""

from __future__ import annotations

from typing import TYPE_CHECKING, final

import torch

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor

    from epochal.engine.run import Run


@final
class Noise:
    """Normal noise of the variance ``eta / (1 + t) ** decay`` after t updates.

    How many these are is counted on the device, so that steps can be captured.

    Args:
        eta: The variance at first.
        decay: How fast it fades; 0 keeps it.
        count: A tensor of one number on the device, moved on by each update.
    """

    def __init__(self, *, eta: float, decay: float, count: Tensor) -> None:
        self._scale = eta**0.5
        self._power = -decay / 2
        self.count = count

    @torch.no_grad()
    def add_to(self, gradients: Sequence[Tensor]) -> None:
        """Change gradients in place, with numbers of their device's own generator."""
        noise = [torch.randn_like(gradient) for gradient in gradients]
        if noise:
            torch._foreach_mul_(noise, self._scale * (1 + self.count) ** self._power)
            torch._foreach_add_(list(gradients), noise)
        self.count.add_(1)


def build_noise(run: Run, before: Noise | None) -> Noise | None:
    """The noise that ``optim.noise`` asks for; it goes on where the one before has come to."""
    options = run.options.optim
    if options.noise is None:
        return None
    count = torch.zeros((), device=run.device) if before is None else before.count
    return Noise(eta=options.noise, decay=options.noise_decay, count=count)
