"""Finding a tensor by name in what a task returned or a loader gave."""

from __future__ import annotations

from torch import Tensor

from epochal.engine.step.loss_inputs import find_by_path as pick_any
from epochal.engine.step.loss_inputs import find_missing_name
from epochal.errors import TaskError, suggest


def get_tensor_by_path(source: object, path: str, *, reader: str, of: str) -> Tensor:
    """The tensor at ``path``: keys, attributes or positions, with dots between them.

    Args:
        source: An output, or a batch.
        path: Such as ``logits``, ``boxes.score`` or ``1``.
        reader: Who asks, for the error message.
        of: What ``source`` is, for the error message.
    """
    value = pick_any(source, path.split("."))
    if value is None:
        name, known = find_missing_name(source, path.split("."))
        what = f"{reader}: no {path!r} in {of}, which is a {type(source).__name__}"
        hint = suggest(name, known) or "name a key, an attribute or a position of it"
        raise TaskError(f"{what}\n  {hint}")
    if not isinstance(value, Tensor):
        what = f"{reader}: {path!r} in {of} is a {type(value).__name__}, not a tensor"
        raise TaskError(f"{what}\n  name the entry of {of} that holds the tensor")
    return value
