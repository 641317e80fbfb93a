"""Laying one tree over another: mappings merge, lists and scalars replace."""

from __future__ import annotations

from dataclasses import replace
from types import MappingProxyType
from typing import TYPE_CHECKING

from epochal.config.node import Node
from epochal.config.scalar import DELETE

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence


def merge(below: Node, above: Node) -> Node:
    """The tree where ``above`` wins over ``below``, key by key.

    A ``$delete`` removes what lies below it; one that finds nothing is kept, because a tree
    further down may still have the key. What is replaced stays reachable as ``replaced``.
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
    return replace(above, value=MappingProxyType(entries))


def merge_all(nodes: Iterable[Node]) -> Node | None:
    """All trees laid over each other, later ones winning; nothing when there are none."""
    result: Node | None = None
    for node in nodes:
        result = node if result is None else merge(result, node)
    return result


def over(above: Node, below: Node) -> Node:
    """The upper node, remembering at the end of its history the one it replaces."""
    history = below if above.replaced is None else over(above.replaced, below)
    return replace(above, replaced=history)


def nest(parts: Sequence[str], node: Node) -> Node:
    """The node under a chain of new mappings: ``("a", "b")`` gives ``{a: {b: node}}``."""
    for part in reversed(parts):
        place = node.key_place
        node = Node(MappingProxyType({part: node}), place, place, node.layer)
    return node


def relabel(node: Node, layer: str) -> Node:
    """The same tree set by another layer."""
    value = node.value
    if node.is_mapping:
        value = MappingProxyType({k: relabel(child, layer) for k, child in node.mapping.items()})
    elif node.is_list:
        value = tuple(relabel(child, layer) for child in node.elements)
    return replace(node, value=value, layer=layer)
