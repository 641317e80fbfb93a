"""Finding a tensor by name in what a task returned or a loader gave."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from torch import Tensor

from epochal.errors import TaskError, suggest


def pick(source: object, path: str, *, reader: str, of: str) -> Tensor:
    """The tensor at ``path``: keys, attributes or positions, with dots between them.

    Args:
        source: An output, or a batch.
        path: Such as ``logits``, ``boxes.score`` or ``1``.
        reader: Who asks, for the error message.
        of: What ``source`` is, for the error message.
    """
    value = source
    for name in path.split("."):
        found, known = _step(value, name)
        if found is None:
            what = f"{reader}: no {path!r} in {of}, which is a {type(source).__name__}"
            hint = suggest(name, known) or "name a key, an attribute or a position of it"
            raise TaskError(f"{what}\n  {hint}")
        value = found
    if not isinstance(value, Tensor):
        what = f"{reader}: {path!r} in {of} is a {type(value).__name__}, not a tensor"
        raise TaskError(f"{what}\n  name the entry of {of} that holds the tensor")
    return value


def _step(value: object, name: str) -> tuple[object, list[str]]:
    """What ``name`` leads to, or None, and the names that would lead somewhere."""
    if isinstance(value, Mapping):
        return value.get(name), [str(key) for key in value]
    if isinstance(value, Sequence) and not isinstance(value, str) and name.isdecimal():
        positions = [str(position) for position in range(len(value))]
        return (value[int(name)] if name in positions else None), positions
    known = [key for key in getattr(value, "__dict__", {}) if not key.startswith("_")]
    return getattr(value, name, None), known
