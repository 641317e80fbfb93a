"""Reports a section or a list that has the wrong shape."""

from __future__ import annotations

from typing import TYPE_CHECKING

from epochal.config.scalar import show

if TYPE_CHECKING:
    from epochal.check.values.checker import ConfigChecker
    from epochal.config.node import Node


def report_shape(checker: ConfigChecker, path: str, node: Node, wanted: str, hint: str) -> None:
    """Report a value that is not a mapping or list, unless loading the config reported it."""
    if not checker.is_known_bad(path):
        what = f"expected {wanted}, got {show(node.to_plain())}"
        checker.report(path, what, node.place, hint)
