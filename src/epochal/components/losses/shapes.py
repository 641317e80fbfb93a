"""Refuses shapes of input and target that torch would silently broadcast."""

from __future__ import annotations

from typing import TYPE_CHECKING

from epochal.errors import TaskError

if TYPE_CHECKING:
    from torch import Tensor


def require_same_shape(name: str, input: Tensor, target: Tensor) -> None:
    """Refuse a target of another shape than the input.

    Raises:
        TaskError: With both shapes.
    """
    if input.shape != target.shape:
        raise TaskError(
            f"loss: {name} got an input of shape {tuple(input.shape)} and a target of shape "
            f"{tuple(target.shape)}\n"
            "  give both the same shape, for example with .unsqueeze(1) or .squeeze(1)"
        )
