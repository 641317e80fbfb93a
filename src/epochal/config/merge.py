"""Merging trees, and setting one value by its dotted path: lists and scalars replace."""

from __future__ import annotations

from dataclasses import replace
from types import MappingProxyType
from typing import TYPE_CHECKING

from epochal.config.node import Node
from epochal.config.scalar import DELETE, show
from epochal.errors import suggest

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

_LISTS = ("hooks", "metrics", "outputs", "evaluation", "imports", "env")
"""Top-level keys under which a number can only be an index."""


class PathError(ValueError):
    """A path that does not exist, with a hint."""

    def __init__(self, what: str, hint: str = "") -> None:
        super().__init__(what)
        self.hint = hint


def merge(below: Node, above: Node) -> Node:
    """The tree where ``above`` wins over ``below``, key by key.

    ``$delete`` removes the key below; it is kept when there is none, because a tree that is
    merged later may have it. A replaced node stays reachable as ``replaced``.
    """
    if not (below.is_mapping and above.is_mapping):
        return over(above, below)
    entries = dict(below.mapping)
    for key, child in above.mapping.items():
        if key not in entries:
            entries[key] = child
        elif child.value == DELETE:
            del entries[key]
        else:
            entries[key] = merge(entries[key], child)
    return above.with_entries(entries)


def merge_all(nodes: Iterable[Node]) -> Node | None:
    """All trees merged, later ones winning; None when there are none."""
    result: Node | None = None
    for node in nodes:
        result = node if result is None else merge(result, node)
    return result


def over(above: Node, below: Node) -> Node:
    """The upper node, with the lower one at the end of its ``replaced`` chain."""
    history = below if above.replaced is None else over(above.replaced, below)
    return replace(above, replaced=history)


def nest(parts: Sequence[str], node: Node) -> Node:
    """The node under a chain of new mappings: ``("a", "b")`` gives ``{a: {b: node}}``."""
    for part in reversed(parts):
        place = node.key_place
        node = Node(MappingProxyType({part: node}), place, place, node.layer)
    return node


def relabel(node: Node, layer: str) -> Node:
    """The same tree with another layer."""
    return replace(node.map_children(lambda key, child: relabel(child, layer)), layer=layer)


def assign(root: Node, path: str, node: Node) -> Node:
    """The tree with ``node`` merged into the value at ``path``; missing mappings are made.

    PathError if the path runs through a scalar or past the end of a list.
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
    entries = dict(here.mapping)
    # Search spaces have keys with dots, such as optim.lr.
    sizes = range(len(parts), 1, -1)
    size = next((size for size in sizes if ".".join(parts[:size]) in entries), 1)
    key, rest = ".".join(parts[:size]), parts[size:]
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
        return here.with_entries(entries)
    return replace(node.with_entries(entries), template=None, replaced=here)


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
