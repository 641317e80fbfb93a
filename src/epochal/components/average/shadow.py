"""A copy of a model's weights and float buffers, in tensors with fixed addresses."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, final

import torch
from torch import Tensor, nn

if TYPE_CHECKING:
    from collections.abc import Iterator


@final
class Shadow:
    """Float parameters and buffers of a model, and a copy of each.

    Integer buffers, such as counters, are shared with the model.

    Args:
        model: The copies start with its current weights.
    """

    def __init__(self, model: nn.Module) -> None:
        self._weights: dict[str, Tensor] = {}
        self._copies: dict[str, Tensor] = {}
        self.admit(model)

    @property
    def weights(self) -> list[Tensor]:
        """The weights of the model, in the order of the copies."""
        return list(self._weights.values())

    @property
    def copies(self) -> list[Tensor]:
        """The copies, in the order of the weights."""
        return list(self._copies.values())

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
    return one.is_set_to(other) and one.dtype == other.dtype


def _is_float(tensor: Tensor) -> bool:
    return tensor.is_floating_point() or tensor.is_complex()
