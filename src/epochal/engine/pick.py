"""Finding a value by its path in what a task returned or a loader gave."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

_MAPPINGS = (dict, Mapping)  # the usual type first: to ask an abstract one takes longer
Value = Any  # outputs and batches are whatever users make of them


def pick(source: Value, names: Sequence[str]) -> Value:
    """What keys, attributes and positions lead to, one after the other; None if nothing.

    Args:
        source: An output, or a batch.
        names: Such as ``["boxes", "score"]`` or ``["1"]``.
    """
    value = source
    for name in names:
        if isinstance(value, _MAPPINGS):
            value = value.get(name)
        elif isinstance(value, Sequence) and not isinstance(value, str) and name.isdecimal():
            value = value[int(name)] if int(name) < len(value) else None
        else:
            value = getattr(value, name, None)
        if value is None:
            return None
    return value


def known_names(source: Value) -> list[str]:
    """The names that lead somewhere in an output or a batch."""
    if isinstance(source, Mapping):
        return [str(key) for key in source]
    if isinstance(source, Sequence) and not isinstance(source, str):
        fields = getattr(source, "_fields", ())  # of a named tuple
        return list(fields) or [str(position) for position in range(len(source))]
    return [key for key in getattr(source, "__dict__", {}) if not key.startswith("_")]


def closest(source: Value, names: Sequence[str]) -> tuple[str, list[str]]:
    """The first name of a path that leads nowhere, and those that would at its place."""
    value = source
    for index, name in enumerate(names):
        found = pick(source, names[: index + 1])
        if found is None:
            return name, known_names(value)
        value = found
    return "", []
