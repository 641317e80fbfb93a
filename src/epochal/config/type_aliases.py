"""The keys of other frameworks for a component's name, such as ``_target_``, read as ``type``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from epochal.config.problems import Findings, join

if TYPE_CHECKING:
    from collections.abc import Mapping

    from epochal.config.node import Node

ALIASES = ("NAME", "_target_", "class_path")
_FREE_SECTION = "extra"
"""Values of users: nothing in it is renamed."""


def rename_aliases(root: Node, findings: Findings) -> Node:
    """The config with every spec below its top level named by ``type``."""
    return root.map_children(lambda key, child: rename_value(child, key, findings))


def rename_value(node: Node, path: str, findings: Findings) -> Node:
    """A value that is set at ``path``, with every spec in it named by ``type``."""
    free = path.split(".")[0] == _FREE_SECTION
    return node if free else _rename_below(node, path, findings)


def rename_path(path: str) -> str:
    """The path with ``type`` in place of an alias at its end: ``model.NAME``."""
    head, dot, last = path.rpartition(".")
    return f"{head}.type" if dot and last in ALIASES and head != _FREE_SECTION else path


def rename_spec(node: Node, path: str, findings: Findings) -> Node:
    """One mapping with its own component name under ``type``; deeper ones stay as they are."""
    if not node.is_mapping:
        return node
    names = [key for key in ("type", *ALIASES) if _names_component(node, key)]
    if names in ([], ["type"]):
        return node
    if len(names) > 1:
        where = node.mapping[names[1]].key_place
        what = f"both {names[0]!r} and {names[1]!r} name the component"
        findings.report(path, what, where, f"keep {names[0]!r}")
        return node
    entries = {"type" if k == names[0] else k: child for k, child in node.mapping.items()}
    if names == ["class_path"]:
        entries = _flatten(entries, path, findings)
    return node.with_entries(entries)


def _rename_below(node: Node, path: str, findings: Findings) -> Node:
    below = node.map_children(lambda key, child: _rename_below(child, join(path, key), findings))
    return rename_spec(below, path, findings)


def _names_component(node: Node, key: str) -> bool:
    child = node.mapping.get(key)
    return child is not None and (key == "type" or isinstance(child.value, str))


def _flatten(entries: Mapping[str, Node], path: str, findings: Findings) -> dict[str, Node]:
    arguments = entries.get("init_args")
    if arguments is None or not arguments.is_mapping:
        return dict(entries)
    flat = {key: child for key, child in entries.items() if key != "init_args"}
    for key, child in arguments.mapping.items():
        if key in flat:
            what = f"{key!r} is set in init_args and beside it"
            findings.report(join(path, key), what, child.key_place, "keep one of the two")
            continue
        flat[key] = child
    return flat
