"""Averages of weights: EMA and SWA."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, final

import torch
from torch import Tensor, nn
from typing_extensions import override

from epochal.config.bounds import AtLeast, Below
from epochal.config.duration import Duration, parse_duration
from epochal.distributed.sharded_tensor import get_own_part
from epochal.engine.interfaces.average import UPDATES_KEY, Average
from epochal.engine.interfaces.every import Every
from epochal.errors import ConfigError, Problem

if TYPE_CHECKING:
    from collections.abc import Iterator
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
        self._averaged = AveragedWeights(model)
        copies = self._averaged.copies
        device = copies[0].device if copies else None
        self._updates = torch.zeros((), device=device) if self._has_warmup else None

    @override
    def admit(self, model: nn.Module) -> None:
        self._averaged.admit(model)

    @override
    @torch.no_grad()
    def update(self, skipped: Tensor | None = None) -> None:
        copies, weights = self._averaged.copies, self._averaged.weights
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
            self._averaged.choose(moved, skipped)
        else:
            torch._foreach_copy_(copies, moved)

    def _move_warm(self, updates: Tensor, skipped: Tensor | None) -> list[Tensor]:
        """The next average; its decay is computed on the device, so that it can be captured."""
        # 1 - (1 + n) / (10 + n), at least 1 - decay.
        share = (9 / (10 + updates)).clamp(min=1 - self.decay)
        moved = list(torch._foreach_sub(self._averaged.weights, self._averaged.copies))
        torch._foreach_mul_(moved, share)
        torch._foreach_add_(moved, self._averaged.copies)
        updates.add_(1 if skipped is None else 1 - skipped)
        return moved

    @override
    def swapped(self) -> AbstractContextManager[None]:
        return self._averaged.swapped()

    @override
    def state_tensors(self) -> dict[str, Tensor]:
        tensors = self._averaged.tensors()
        return tensors if self._updates is None else {**tensors, UPDATES_KEY: self._updates}


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
        self._averaged = AveragedWeights(model)
        self._count.zero_()

    @override
    def admit(self, model: nn.Module) -> None:
        self._averaged.admit(model)

    @override
    @torch.no_grad()
    def update(self, skipped: Tensor | None = None) -> None:
        if self._averaged.copies:
            share = 1 / (int(self._count) + 1)
            torch._foreach_lerp_(self._averaged.copies, self._averaged.weights, share)
        self._count += 1

    @override
    def swapped(self) -> AbstractContextManager[None]:
        self._copy_until_start()
        return self._averaged.swapped()

    @override
    def state_tensors(self) -> dict[str, Tensor]:
        self._copy_until_start()
        return {**self._averaged.tensors(), UPDATES_KEY: self._count}

    def _copy_until_start(self) -> None:
        """Copy the model's weights until the first update."""
        if int(self._count) == 0:
            self._averaged.copy_weights()


@final
class AveragedWeights:
    """Float parameters and buffers of a model, and a copy of each.

    Integer buffers, such as counters, are shared with the model. The copies start with its
    current weights.
    """

    def __init__(self, model: nn.Module) -> None:
        self._weights: dict[str, Tensor] = {}
        self._copies: dict[str, Tensor] = {}
        self.admit(model)

    @property
    def weights(self) -> list[Tensor]:
        """The weights of the model, or the parts of this process, in the order of the copies."""
        return [get_own_part(one) for one in self._weights.values()]

    @property
    def copies(self) -> list[Tensor]:
        """The copies, in the order of the weights."""
        return [get_own_part(one) for one in self._copies.values()]

    def admit(self, model: nn.Module) -> None:
        """Add copies of weights that are new in the model, and drop those that are gone."""
        parameters = dict(model.named_parameters())
        named = {**parameters, **dict(model.named_buffers())}
        before, copies = self._weights, self._copies
        self._is_parameter = [name in parameters for name, one in named.items() if _is_float(one)]
        self._weights = {name: one.detach() for name, one in named.items() if _is_float(one)}
        self._copies = {
            name: copies[name] if name in before and _is_same(one, before[name]) else one.clone()
            for name, one in self._weights.items()
        }

    def choose(self, moved: list[Tensor], skipped: Tensor) -> None:
        """Take the new values ``moved``, or keep the copies unchanged if ``skipped`` is 1."""
        pairs = list(zip(self.copies, moved, self._is_parameter, strict=True))
        olds = [old for old, _, is_parameter in pairs if is_parameter]
        news = [new for _, new, is_parameter in pairs if is_parameter]
        if olds:
            torch._foreach_mul_(olds, skipped)
            torch._foreach_mul_(news, 1 - skipped)
            torch._foreach_add_(olds, news)
        for old, new, is_parameter in pairs:
            if not is_parameter:
                # The skipped step may have made a buffer NaN, and NaN times 0 is NaN.
                old.copy_(torch.where(skipped != 0, old, new))

    @torch.no_grad()
    def copy_weights(self) -> None:
        """Set all copies to the current weights."""
        for copy, weight in zip(self.copies, self.weights, strict=True):
            copy.copy_(weight)

    @contextmanager
    def swapped(self) -> Iterator[None]:
        """Exchange weights and copies for the duration of a block."""
        self._swap()
        try:
            yield
        finally:
            self._swap()

    def tensors(self) -> dict[str, Tensor]:
        """The copies by name."""
        return dict(self._copies)

    @torch.no_grad()
    def _swap(self) -> None:
        for copy, weight in zip(self.copies, self.weights, strict=True):
            own = weight.clone()
            weight.copy_(copy)
            copy.copy_(own)


def _is_same(one: Tensor, other: Tensor) -> bool:
    """Whether two tensors share the same memory, shape and dtype."""
    return get_own_part(one).is_set_to(get_own_part(other)) and one.dtype == other.dtype


def _is_float(tensor: Tensor) -> bool:
    return tensor.is_floating_point() or tensor.is_complex()
