"""Exponential moving average (EMA) of the weights."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, final

import torch
from torch import Tensor, nn
from typing_extensions import override

from epochal.components.average.shadow import Shadow
from epochal.config.bounds import AtLeast, Below
from epochal.engine.interfaces.every import Every
from epochal.engine.optim.average import UPDATES_KEY, Average
from epochal.errors import ConfigError, Problem

if TYPE_CHECKING:
    from contextlib import AbstractContextManager


@final
class Ema(Average):
    """Exponential moving average of the weights, updated after each step.

    Float buffers, such as the statistics of batch norm, are averaged too; integer buffers are
    shared with the model.

    Args:
        decay: Share of the old average that is kept: 0.999 averages over about 1000 steps.
        warmup: Start with a smaller decay: ``(1 + n) / (10 + n)`` after n updates, at most decay.
        every: How often it is updated, such as ``10st``; each step if null.
    """

    def __init__(
        self,
        *,
        decay: Annotated[float, AtLeast(0), Below(1)] = 0.999,
        warmup: bool = False,
        every: Every | None = None,
    ) -> None:
        if not 0 <= decay < 1:
            what = f"must be at least 0 and below 1, got {decay!r}"
            raise ConfigError(Problem("average.decay", what, hint="write for example 0.999"))
        self.decay = decay
        self.every = None if every is None else Every.parse(every)
        if self.every is not None and self.every.is_never:
            what, hint = "never updates the average", "write for example 10st, or leave it out"
            raise ConfigError(Problem("average.every", what, hint=hint))
        self._has_warmup = warmup

    @override
    def start(self, model: nn.Module) -> None:
        self._shadow = Shadow(model)
        copies = self._shadow.copies
        device = copies[0].device if copies else None
        self._updates = torch.zeros((), device=device) if self._has_warmup else None

    @override
    def admit(self, model: nn.Module) -> None:
        self._shadow.admit(model)

    @override
    @torch.no_grad()
    def update(self, skipped: Tensor | None = None) -> None:
        copies, weights = self._shadow.copies, self._shadow.weights
        if not copies:
            return
        if self._updates is not None:
            moved = self._move_warm(self._updates, skipped)
        elif skipped is None:
            torch._foreach_lerp_(copies, weights, 1 - self.decay)
            return
        else:
            moved = list(torch._foreach_lerp(copies, weights, 1 - self.decay))
        if skipped is not None:
            self._shadow.choose(moved, skipped)
        else:
            torch._foreach_copy_(copies, moved)

    def _move_warm(self, updates: Tensor, skipped: Tensor | None) -> list[Tensor]:
        """The next average; its decay is computed on the device, so that it can be captured."""
        # 1 - (1 + n) / (10 + n), at least 1 - decay.
        share = (9 / (10 + updates)).clamp(min=1 - self.decay)
        moved = list(torch._foreach_sub(self._shadow.weights, self._shadow.copies))
        torch._foreach_mul_(moved, share)
        torch._foreach_add_(moved, self._shadow.copies)
        updates.add_(1 if skipped is None else 1 - skipped)
        return moved

    @override
    def swapped(self) -> AbstractContextManager[None]:
        return self._shadow.swapped()

    @override
    def state_tensors(self) -> dict[str, Tensor]:
        tensors = self._shadow.tensors()
        return tensors if self._updates is None else {**tensors, UPDATES_KEY: self._updates}
