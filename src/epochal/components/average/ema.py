"""The exponential moving average of the weights."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, final

import torch
from torch import Tensor, nn
from typing_extensions import override

from epochal.config.bounds import AtLeast, Below
from epochal.engine.average import Average
from epochal.errors import ConfigError, Problem

if TYPE_CHECKING:
    from collections.abc import Iterator


@final
class Ema(Average):
    """After each step the average moves a little towards the weights.

    Buffers that hold floats, such as the statistics of batch norm, are averaged too. Those that
    hold integers stay the model's own.

    Args:
        decay: Share of the old average that is kept: 0.999 looks back over about 1000 steps.
    """

    def __init__(self, *, decay: Annotated[float, AtLeast(0), Below(1)] = 0.999) -> None:
        if not 0 <= decay < 1:
            what = f"must be at least 0 and below 1, got {decay!r}"
            raise ConfigError(Problem("average.decay", what, hint="write for example 0.999"))
        self.decay = decay
        self._weights: dict[str, Tensor] = {}
        self._averages: dict[str, Tensor] = {}
        self._parameters: frozenset[str] = frozenset()

    @override
    def start(self, model: nn.Module) -> None:
        self._weights, self._averages = {}, {}
        self.admit(model)

    @override
    def admit(self, model: nn.Module) -> None:
        parameters = dict(model.named_parameters())
        named = {**parameters, **dict(model.named_buffers())}
        before, averages = self._weights, self._averages
        self._parameters = frozenset(parameters)
        self._weights = {name: one.detach() for name, one in named.items() if _is_averaged(one)}
        self._averages = {
            name: averages[name] if name in before and _is_same(one, before[name]) else one.clone()
            for name, one in self._weights.items()
        }

    @override
    @torch.no_grad()
    def update(self, skipped: Tensor | None = None) -> None:
        averages, weights = list(self._averages.values()), list(self._weights.values())
        if not averages:
            return
        if skipped is None:
            torch._foreach_lerp_(averages, weights, 1 - self.decay)
            return
        moved = torch._foreach_lerp(averages, weights, 1 - self.decay)
        self._choose(dict(zip(self._averages, moved, strict=True)), skipped)

    def _choose(self, moved: dict[str, Tensor], skipped: Tensor) -> None:
        """Become what has moved, or stay bit for bit, as a device tensor says."""
        olds = [average for name, average in self._averages.items() if name in self._parameters]
        news = [average for name, average in moved.items() if name in self._parameters]
        if olds:
            torch._foreach_mul_(olds, skipped)
            torch._foreach_mul_(news, 1 - skipped)
            torch._foreach_add_(olds, news)
        for name in self._averages.keys() - self._parameters:
            # The step that was skipped may have made a buffer NaN, which times 0 stays NaN.
            average = self._averages[name]
            average.copy_(torch.where(skipped != 0, average, moved[name]))

    @override
    @contextmanager
    def swapped(self) -> Iterator[None]:
        self._swap()
        try:
            yield
        finally:
            self._swap()

    @override
    def state_tensors(self) -> dict[str, Tensor]:
        return dict(self._averages)

    @torch.no_grad()
    def _swap(self) -> None:
        for name, weight in self._weights.items():
            own = weight.clone()
            weight.copy_(self._averages[name])
            self._averages[name].copy_(own)


def _is_same(one: Tensor, other: Tensor) -> bool:
    """Whether two tensors have the same memory, so that one is as good as the other."""
    return one.is_set_to(other) and one.dtype == other.dtype


def _is_averaged(tensor: Tensor) -> bool:
    return tensor.is_floating_point() or tensor.is_complex()
