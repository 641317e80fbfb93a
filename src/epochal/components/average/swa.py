"""The mean of the weights at several moments of the training, each counting the same."""

from __future__ import annotations

from typing import TYPE_CHECKING, final

import torch
from torch import Tensor, nn
from typing_extensions import override

from epochal.components.average.shadow import Shadow
from epochal.config.duration import Duration, parse_duration
from epochal.engine.interfaces.every import Every
from epochal.engine.optim.average import UPDATES_KEY, Average
from epochal.errors import ConfigError, Problem

if TYPE_CHECKING:
    from contextlib import AbstractContextManager


@final
class Swa(Average):
    """The mean of the weights every so often, from some moment of the run on.

    Before that moment it is the model itself. Buffers that hold floats, such as the statistics
    of batch norm, are averaged like weights; those that hold integers stay the model's own.

    Args:
        start: When the first weights count, such as ``5ep``; at once if null.
        every: How often weights are taken in: ``1ep``, ``100st``.
    """

    def __init__(
        self,
        *,
        start: Duration | None = None,
        every: Every = "1ep",  # type: ignore[assignment]  # the schema shows what users type
    ) -> None:
        self.every = Every.parse(every)
        if self.every.is_never:
            hint = "write for example 1ep"
            raise ConfigError(Problem("average.every", "weights would never count", hint=hint))
        self.begin = None if start is None else parse_duration(str(start))
        self._count = torch.zeros((), dtype=torch.int64)

    @override
    def start(self, model: nn.Module) -> None:
        self._shadow = Shadow(model)
        self._count.zero_()

    @override
    def admit(self, model: nn.Module) -> None:
        self._shadow.admit(model)

    @override
    @torch.no_grad()
    def update(self, skipped: Tensor | None = None) -> None:
        if self._shadow.copies:
            share = 1 / (int(self._count) + 1)
            torch._foreach_lerp_(self._shadow.copies, self._shadow.weights, share)
        self._count += 1

    @override
    def swapped(self) -> AbstractContextManager[None]:
        self._follow()
        return self._shadow.swapped()

    @override
    def state_tensors(self) -> dict[str, Tensor]:
        self._follow()
        return {**self._shadow.tensors(), UPDATES_KEY: self._count}

    def _follow(self) -> None:
        """Be the model as long as nothing counts."""
        if int(self._count) == 0:
            self._shadow.copy_weights()
