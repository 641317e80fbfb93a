"""The leaves of nested values by dotted path, as a config names them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

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
