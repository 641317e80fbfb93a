"""Reads numbers of a config section, and collects every mistake in it."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, final

from epochal.errors import Problem

if TYPE_CHECKING:
    from epochal.config.node import Node
    from epochal.errors import Place


@final
class ValueReader:
    """Reads values; ``problems`` has every mistake so far."""

    def __init__(self) -> None:
        self.problems: list[Problem] = []

    def report(self, key: str, what: str, place: Place | None, hint: str = "") -> None:
        """Note a mistake."""
        known = place if place is not None and place.name else None
        self.problems.append(Problem(key, what, known, hint))

    def read_count(
        self,
        node: Node | None,
        key: str,
        default: int | None,
        *,
        least: int,
        most: float = math.inf,
    ) -> int | None:
        """A whole number; the default if there is none, or a mistaken one."""
        if node is None or node.value is None:
            return default
        value = node.value
        if isinstance(value, int) and not isinstance(value, bool) and least <= value <= most:
            return value
        limit = f" to {most}" if most < math.inf else ""
        what = f"expected a whole number from {least}{limit}, got {_show(node)}"
        self.report(key, what, node.place)
        return default

    def read_number(self, node: Node | None, key: str, default: float | None) -> float | None:
        """A number; the default if there is none, or a mistaken one."""
        if node is None or node.value is None:
            return default
        if isinstance(node.value, bool) or not isinstance(node.value, int | float):
            self.report(key, f"expected a number, got {_show(node)}", node.place)
            return default
        return float(node.value)


def _show(node: Node) -> str:
    return "a list" if node.is_list else "a mapping" if node.is_mapping else repr(node.value)
