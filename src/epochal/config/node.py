"""The config tree: frozen values with the place where they were written."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any, final

from epochal.errors import Place

Scalar = None | bool | int | float | str
Plain = Any  # nested dicts, lists and scalars: no narrower type is useful
NOWHERE = Place("")
TASK_OPENING = "${task:"
"""The start of a reference to an attribute of the task."""


@final
@dataclass(frozen=True, slots=True)
class Node:
    """One value of a config, with its origin."""

    value: Scalar | tuple[Node, ...] | Mapping[str, Node]
    """A scalar, the elements of a list, or the entries of a mapping."""

    place: Place = NOWHERE
    """Where the value was written."""

    key_place: Place = NOWHERE
    """Where its key was written."""

    layer: str = "file"
    """What set it: default, base, file, variant, sweep or command line."""

    replaced: Node | None = None
    """The value that a higher layer replaced."""

    template: str | None = None
    """The text with its ``${...}`` as written, when the value came from one."""

    @property
    def mapping(self) -> Mapping[str, Node]:
        """The entries; empty when this is not a mapping."""
        return self.value if isinstance(self.value, Mapping) else MappingProxyType({})

    @property
    def elements(self) -> tuple[Node, ...]:
        """The elements; empty when this is not a list."""
        return self.value if isinstance(self.value, tuple) else ()

    @property
    def is_mapping(self) -> bool:
        """Whether this is a mapping, also an empty one."""
        return isinstance(self.value, Mapping)

    @property
    def is_list(self) -> bool:
        """Whether this is a list, also an empty one."""
        return isinstance(self.value, tuple)

    @property
    def is_deferred(self) -> bool:
        """Whether this is a ``${task:NAME}`` whose value is known only when the task is built."""
        return self.value == self.template and str(self.template).startswith(TASK_OPENING)

    def find(self, path: str) -> Node | None:
        """The node at a dotted path such as ``hooks.0.patience``, if there is one."""
        node: Node | None = self
        for part in path.split(".") if path else ():
            if node is None:
                return None
            if node.is_list:
                index = int(part) if part.isdecimal() else len(node.elements)
                node = node.elements[index] if index < len(node.elements) else None
            else:
                node = node.mapping.get(part)
        return node

    def get(self, path: str) -> Node:
        """The node at a dotted path; a null without a place if there is none."""
        return self.find(path) or Node(None)

    def find_place(self, path: str) -> Place | None:
        """Where the value at a path was written, or its nearest parent; None: unknown."""
        while path:
            node = self.find(path)
            if node is not None and node.layer != "default":
                return node.place if node.place.name else None
            path = path.rpartition(".")[0]
        return None

    def with_entries(self, entries: Mapping[str, Node]) -> Node:
        """The same mapping with other entries."""
        return replace(self, value=MappingProxyType(dict(entries)))

    def without(self, *keys: str) -> Node:
        """The same mapping without some of its keys."""
        return self.with_entries({k: child for k, child in self.mapping.items() if k not in keys})

    def map_children(self, change: Callable[[str, Node], Node]) -> Node:
        """The same mapping or list with ``change(key, child)`` in place of each child."""
        if self.is_mapping:
            return self.with_entries({k: change(k, child) for k, child in self.mapping.items()})
        if self.is_list:
            return replace(
                self, value=tuple(change(str(i), c) for i, c in enumerate(self.elements))
            )
        return self

    def iter_leaves(self, path: str = "") -> Iterator[tuple[str, Node]]:
        """Every scalar and every empty collection below, with its dotted path."""
        children: Iterator[tuple[str, Node]]
        if self.is_mapping:
            children = iter(self.mapping.items())
        else:
            children = ((str(i), node) for i, node in enumerate(self.elements))
        empty = True
        for key, child in children:
            empty = False
            yield from child.iter_leaves(f"{path}.{key}" if path else key)
        if empty:
            yield path, self

    def to_plain(self, *, is_public: bool = False) -> Plain:
        """The same value as ordinary dicts, lists and scalars."""
        if is_public and "${env:" in (self.template or ""):
            return self.template
        if isinstance(self.value, Mapping):
            return {key: child.to_plain(is_public=is_public) for key, child in self.value.items()}
        if isinstance(self.value, tuple):
            return [child.to_plain(is_public=is_public) for child in self.value]
        return self.value

    def to_public(self) -> Plain:
        """As ``to_plain``, but values from the environment, maybe secrets, stay references."""
        return self.to_plain(is_public=True)


def from_plain(value: Plain, *, place: Place = NOWHERE, layer: str = "file") -> Node:
    """A tree of Python values whose nodes all have the same place."""
    if isinstance(value, Mapping):
        entries = {
            str(key): from_plain(child, place=place, layer=layer) for key, child in value.items()
        }
        return Node(MappingProxyType(entries), place, place, layer)
    if isinstance(value, list | tuple):
        elements = tuple(from_plain(child, place=place, layer=layer) for child in value)
        return Node(elements, place, place, layer)
    if value is None or isinstance(value, bool | int | float | str):
        return Node(value, place, place, layer)
    return Node(str(value), place, place, layer)
