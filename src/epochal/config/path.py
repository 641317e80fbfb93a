"""Setting one value of a tree by its dotted path."""

from __future__ import annotations

from dataclasses import replace
from types import MappingProxyType
from typing import TYPE_CHECKING

from epochal.config.merge import merge, nest
from epochal.config.scalar import DELETE, show
from epochal.errors import suggest

if TYPE_CHECKING:
    from collections.abc import Sequence

    from epochal.config.node import Node


_LISTS = ("hooks", "metrics", "imports", "env")
"""Keys at the top of a config under which a number can only mean an element."""


class PathError(ValueError):
    """A path that leads nowhere; carries what to try instead."""

    def __init__(self, what: str, hint: str = "") -> None:
        super().__init__(what)
        self.hint = hint


def assign(root: Node, path: str, node: Node) -> Node:
    """The tree with ``node`` laid over what stands at ``path``; mappings on the way are made.

    Raises:
        PathError: The path runs through a scalar or past the end of a list.
    """
    parts = path.split(".")
    there = root.mapping.get(parts[0])
    if parts[0] in _LISTS and parts[1:] and (there is None or there.value is None):
        raise PathError(f"there are no {parts[0]}", f"add them: {parts[0]}=[...]")
    return _assign(root, parts, (), node)


def _assign(here: Node, parts: Sequence[str], done: tuple[str, ...], node: Node) -> Node:
    if not parts:
        return merge(here, node)
    if here.is_list:
        return _assign_element(here, parts, done, node)
    if not here.is_mapping and here.value is not None:
        where = ".".join(done)
        raise PathError(f"{where} is {show(here.value)} and has no key {parts[0]!r}")
    key, rest = parts[0], parts[1:]
    entries = dict(here.mapping)
    if key in entries and (rest or node.value != DELETE):
        entries[key] = _assign(entries[key], rest, (*done, key), node)
    elif key in entries:
        del entries[key]
    elif node.value == DELETE:
        path = ".".join((*done, key))
        raise PathError(f"nothing to delete at {path}", suggest(key, entries))
    else:
        entries[key] = nest(rest, node)
    if here.is_mapping:
        return replace(here, value=MappingProxyType(entries))
    made = nest((), replace(node, value=MappingProxyType(entries), template=None))
    return replace(made, replaced=here)


def _assign_element(here: Node, parts: Sequence[str], done: tuple[str, ...], node: Node) -> Node:
    index = int(parts[0]) if parts[0].isdecimal() and len(parts[0]) < 6 else -1
    size = len(here.elements)
    if not 0 <= index < size:
        where = ".".join(done)
        hint = f"use a number from 0 to {size - 1}" if size else f"set all of it: {where}=[...]"
        raise PathError(f"{where} is a list of {size} and has no element {parts[0]!r}", hint)
    elements = list(here.elements)
    if len(parts) == 1 and node.value == DELETE:
        del elements[index]
    else:
        elements[index] = _assign(elements[index], parts[1:], (*done, parts[0]), node)
    return replace(here, value=tuple(elements))
