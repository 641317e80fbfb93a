"""A second set of a model's weights and buffers, in tensors that keep their place in memory."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, final

import torch
from torch import Tensor, nn

if TYPE_CHECKING:
    from collections.abc import Iterator


@final
class Shadow:
    """All floats of a model, and a copy of each that goes its own way.

    Integers, such as how many batches were counted, stay the model's own.

    Args:
        model: Its weights as they are now are the first copies.
    """

    def __init__(self, model: nn.Module) -> None:
        self._weights: dict[str, Tensor] = {}
        self._copies: dict[str, Tensor] = {}
        self.admit(model)

    @property
    def weights(self) -> list[Tensor]:
        """The model's own, in the order of the copies."""
        return list(self._weights.values())

    @property
    def copies(self) -> list[Tensor]:
        """The copies, in the order of the weights."""
        return list(self._copies.values())

    def admit(self, model: nn.Module) -> None:
        """Heed weights that the model got since; each starts as a copy of itself."""
        parameters = dict(model.named_parameters())
        named = {**parameters, **dict(model.named_buffers())}
        before, copies = self._weights, self._copies
        self._is_parameter = [name in parameters for name, one in named.items() if _is_kept(one)]
        self._weights = {name: one.detach() for name, one in named.items() if _is_kept(one)}
        self._copies = {
            name: copies[name] if name in before and _is_same(one, before[name]) else one.clone()
            for name, one in self._weights.items()
        }

    def choose(self, moved: list[Tensor], skipped: Tensor) -> None:
        """Become what has moved, or stay bit for bit, as a tensor of 0 or 1 on the device says."""
        pairs = list(zip(self.copies, moved, self._is_parameter, strict=True))
        olds = [old for old, _, is_parameter in pairs if is_parameter]
        news = [new for _, new, is_parameter in pairs if is_parameter]
        if olds:
            torch._foreach_mul_(olds, skipped)
            torch._foreach_mul_(news, 1 - skipped)
            torch._foreach_add_(olds, news)
        for old, new, is_parameter in pairs:
            if not is_parameter:
                # The step that was skipped may have made a buffer NaN, which times 0 stays NaN.
                old.copy_(torch.where(skipped != 0, old, new))

    @torch.no_grad()
    def copy_weights(self) -> None:
        """Let all copies be what the weights are."""
        for copy, weight in zip(self.copies, self.weights, strict=True):
            copy.copy_(weight)

    @contextmanager
    def swapped(self) -> Iterator[None]:
        """The model with the copies in a block; afterwards it has its own weights again."""
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
    """Whether two tensors have the same memory, so that one is as good as the other."""
    return one.is_set_to(other) and one.dtype == other.dtype


def _is_kept(tensor: Tensor) -> bool:
    return tensor.is_floating_point() or tensor.is_complex()
