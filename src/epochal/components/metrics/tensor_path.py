"""Finds a tensor by name in the output of a task or in a batch."""

from __future__ import annotations

from torch import Tensor

from epochal.engine.step.loss_inputs import find_by_path, find_missing_name
from epochal.errors import TaskError, suggest


def get_tensor_by_path(source: object, path: str, *, reader: str, of: str) -> Tensor:
    """The tensor at ``path``: keys, attributes or positions, with dots between them.

    Args:
        source: An output, or a batch.
        path: Such as ``logits``, ``boxes.score`` or ``1``.
        reader: The name of the metric, for the error message.
        of: The name of ``source``, for the error message.
    """
    value = find_by_path(source, path.split("."))
    if value is None:
        name, known = find_missing_name(source, path.split("."))
        what = f"{reader}: no {path!r} in {of}, which is a {type(source).__name__}"
        hint = suggest(name, known) or "name a key, an attribute or a position of it"
        raise TaskError(f"{what}\n  {hint}")
    if not isinstance(value, Tensor):
        what = f"{reader}: {path!r} in {of} is a {type(value).__name__}, not a tensor"
        raise TaskError(f"{what}\n  name the entry of {of} that is the tensor")
    return value
