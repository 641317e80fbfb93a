"""Reads values from records as the expected type, since damaged files may hold anything."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any


def as_text(value: object) -> str:
    """The value if it is a string, else an empty one."""
    return value if isinstance(value, str) else ""


def as_count(value: object) -> int:
    """The value if it is an integer, else 0."""
    return value if isinstance(value, int) else 0


def as_mapping(value: object) -> dict[str, Any]:
    """The value if it is a mapping, else an empty one."""
    return dict(value) if isinstance(value, Mapping) else {}


def as_float(value: object) -> float | None:
    """The value as a float; None if it is not a number, NaN, or too large."""
    if not isinstance(value, int | float) or isinstance(value, bool):
        return None
    try:
        number = float(value)
    except OverflowError:
        return None
    return None if math.isnan(number) else number


def as_finite_numbers(value: object) -> dict[str, float]:
    """The finite numbers of a mapping, by name."""
    found = {str(name): as_float(number) for name, number in as_mapping(value).items()}
    return {name: one for name, one in found.items() if one is not None and math.isfinite(one)}


_MAX_DEPTH = 100
"""Deeper than any config; in a damaged file, everything below is one leaf."""


def iter_leaves(
    value: object, path: str = "", *, depth: int = _MAX_DEPTH
) -> Iterator[tuple[str, Any]]:
    """Every scalar and empty collection in ``value`` by its path, such as ``hooks.0.type``.

    The paths are those of ``Node.iter_leaves``.
    """
    children: list[tuple[object, object]] = []
    if isinstance(value, Mapping):
        children = list(value.items())
    elif isinstance(value, list | tuple):
        children = list(enumerate(value))
    if not children or not depth:
        if path:
            yield path, value
        return
    for key, child in children:
        yield from iter_leaves(child, f"{path}.{key}" if path else str(key), depth=depth - 1)
