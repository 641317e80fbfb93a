"""Stochastic weight averaging (SWA): the mean of the weights at several points of the run."""

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
    """The mean of the weights at regular intervals, from a given point of the run.

    Before that it equals the model. Float buffers, such as the statistics of batch norm, are
    averaged like weights; integer buffers are shared with the model.

    Args:
        start: When averaging starts, such as ``5ep``; at once if null.
        every: How often the weights are added to the mean: ``1ep``, ``100st``.
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
            raise ConfigError(Problem("average.every", "never updates the average", hint=hint))
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
        self._copy_until_start()
        return self._shadow.swapped()

    @override
    def state_tensors(self) -> dict[str, Tensor]:
        self._copy_until_start()
        return {**self._shadow.tensors(), UPDATES_KEY: self._count}

    def _copy_until_start(self) -> None:
        """Equal the model until the first update."""
        if int(self._count) == 0:
            self._shadow.copy_weights()
