"""How big a config may get, so that a hostile file costs a message and not the machine."""

from __future__ import annotations

from typing import TYPE_CHECKING, NoReturn

from epochal.errors import ConfigError, Problem

if TYPE_CHECKING:
    from epochal.config.node import Node

MAX_BYTES = 1_000_000
MAX_NODES = 10_000
MAX_DEPTH = 64
MAX_BASE_DEPTH = 16
MAX_BASES = 256


def refuse(name: str, what: str, hint: str = "") -> NoReturn:
    """Raise the error for a source that cannot be read at all."""
    raise ConfigError(Problem(name, what, hint=hint))


def refuse_size(name: str) -> NoReturn:
    """Raise the error for a config of too many values."""
    what = f"more than {MAX_NODES:,} values once aliases and bases are expanded"
    refuse(name, what, "keep data in data files and name them in the config")


def refuse_depth(name: str) -> NoReturn:
    """Raise the error for a config that nests too deep."""
    refuse(name, f"values are nested more than {MAX_DEPTH} levels deep", "flatten the structure")


def measure(node: Node, *, enough: int = MAX_NODES) -> tuple[int, int]:
    """How many values a tree has and how deep it is; stops soon after ``enough`` values."""
    count = depth = 0
    todo = [(node, 1)]
    while todo and count <= enough:
        current, level = todo.pop()
        count += 1
        depth = max(depth, level)
        todo.extend((child, level + 1) for child in current.mapping.values())
        todo.extend((child, level + 1) for child in current.elements)
    return count, depth
