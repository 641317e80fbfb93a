"""Several specs by name where usually one stands: ``optim: {generator: {...}, critic: {...}}``."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from epochal.check.sections import SECTIONS, own_signature
from epochal.check.types import is_spec
from epochal.check.walk import with_entries
from epochal.errors import Place

if TYPE_CHECKING:
    from epochal.check.parameters import Signature
    from epochal.check.sections import Section
    from epochal.check.walk import Walk
    from epochal.config.node import Node
    from epochal.registry.library import Library

SHARED = ("accumulate", "noise", "noise_decay")
"""Keys of the section itself that hold for all of several optimizers."""


def has_members(section: Section, node: Node) -> bool:
    """Whether a section holds several specs by name instead of one."""
    if not section.members or is_spec(node):
        return False
    return any(is_spec(child) for child in node.mapping.values())


def member_signature(section: Section, library: Library) -> Signature:
    """The keys that belong to each of several specs, beside those of its component."""
    return own_signature(replace(section, options=section.members, keys=()), library)


def expand_members(walk: Walk, section: Section, node: Node, own: Signature) -> Node:
    """The section with each of its specs expanded; mistakes are noted in ``walk``."""
    shared = [item for item in own.parameters if item.name in SHARED]
    keys = {name: child for name, child in node.mapping.items() if name in SHARED}
    signature = replace(own, parameters=tuple(shared))
    entries = dict(
        walk.entries(section.name, with_entries(node, keys), (signature,), Place(own.owner)).mapping
    )
    members = member_signature(section, walk.registry.library)
    for name, child in node.mapping.items():
        path = f"{section.name}.{name}"
        if name in SHARED:
            continue
        if own.get(name) is not None:
            what = f"{name!r} must be said for each of several optimizers"
            walk.mistakes.report(path, what, child.key_place, f"write it in each that needs {name}")
        elif not child.is_mapping:
            what = f"unknown key {name!r} beside several optimizers"
            hint = f"write {name}: {{type: ...}} for one more of them, or move it into one"
            walk.mistakes.report(path, what, child.key_place, hint)
        else:
            entries[name] = _member(walk, path, child, section, members)
    return with_entries(node, entries)


def _member(walk: Walk, path: str, node: Node, section: Section, own: Signature) -> Node:
    rest = {key: child for key, child in node.mapping.items() if key != "schedule"}
    expanded = walk.spec(path, with_entries(node, rest), section.kind, own)
    schedule = node.mapping.get("schedule")
    if schedule is None or schedule.value is None:
        return expanded
    where = SECTIONS["schedule"]
    keys = own_signature(where, walk.registry.library)
    made = walk.spec(f"{path}.schedule", schedule, where.kind, keys)
    return with_entries(expanded, {**expanded.mapping, "schedule": made})
