"""Checks and expands one section, according to its shape."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from epochal.check.sections.pipes import expand_pipes, has_pipes
from epochal.check.sections.sections import SECTIONS, section_signature, split_names
from epochal.check.sections.shape_problems import report_shape
from epochal.check.signatures.parameters import Parameter, Signature
from epochal.check.values.types import is_spec
from epochal.check.values.unknown_keys import describe_unknown, suggest_known
from epochal.config.source_file import display_name
from epochal.errors import Place

if TYPE_CHECKING:
    from epochal.check.sections.sections import Section
    from epochal.check.values.checker import ConfigChecker
    from epochal.config.node import Node
    from epochal.registry.module_finder import ModuleFinder


def expand_section(checker: ConfigChecker, section: Section, node: Node) -> Node:
    """A whole section with its defaults; mistakes go into ``checker``."""
    own = section_signature(section, checker.finder)
    if section.shape == "value":
        return _value(checker, section, node)
    if section.shape == "options":
        return _options(checker, section.name, node, own)
    if has_members(section, node):
        return expand_members(checker, section, node, own)
    if section.shape == "spec":
        return checker.spec(section.name, node, section.kind, own)
    expand = {"specs": _specs, "splits": _splits, "terms": _terms}.get(section.shape)
    return node if expand is None else expand(checker, section, node, own)


def _value(checker: ConfigChecker, section: Section, node: Node) -> Node:
    path = section.name
    if section.keys and node.is_mapping:
        return _options(checker, path, node, Signature(f"section {path!r}", section.keys))
    parameter = Parameter(path, section.annotation, section.default)
    return checker.value(path, node, parameter, f"section {path!r}")


def _options(checker: ConfigChecker, path: str, node: Node, own: Signature) -> Node:
    if node.is_mapping:
        return checker.entries(path, node, (own,), _place(own))
    first = own.parameters[0].name if own.parameters else "key"
    report_shape(checker, path, node, "a mapping", f"write {path}: {{{first}: ...}}")
    return node


def _specs(checker: ConfigChecker, section: Section, node: Node, own: Signature) -> Node:
    path = section.name
    if not node.is_list:
        report_shape(checker, path, node, "a list", f"write {path}: [{{type: ...}}]")
        return node
    return _each_spec(checker, path, node, section.kind, own)


def _each_spec(checker: ConfigChecker, path: str, node: Node, kind: str, own: Signature) -> Node:
    return node.map_children(lambda key, child: checker.spec(f"{path}.{key}", child, kind, own))


def _terms(checker: ConfigChecker, section: Section, node: Node, own: Signature) -> Node:
    if node.is_list:
        return _specs(checker, section, node, own)
    if not is_mapping_of_specs(node):
        return checker.spec(section.name, node, section.kind, own)
    return _each_spec(checker, section.name, node, section.kind, own)


def _splits(checker: ConfigChecker, section: Section, node: Node, own: Signature) -> Node:
    path, names = section.name, split_names(checker.finder)
    if not node.is_mapping:
        report_shape(checker, path, node, "a mapping of splits", "write data: {train: {type: ...}}")
        return node
    entries: dict[str, Node] = {}
    for written, child in node.mapping.items():
        here = f"{path}.{written}"
        split = names.get(written, "")
        if not split:
            what, hint = f"unknown split {written!r}", suggest_known(written, names)
            checker.report(here, what, child.key_place, hint)
        elif split in entries:
            what = f"the split {split!r} is given twice, once as {written!r}"
            checker.report(here, what, child.key_place, "keep one of them")
        elif is_mapping_of_specs(child):
            loaders = {
                name: _loader(checker, f"{here}.{name}", one, section, own)
                for name, one in child.mapping.items()
            }
            entries[split] = child.with_entries(loaders)
        else:
            entries[split] = _loader(checker, here, child, section, own)
    return node.with_entries(entries)


def _loader(
    checker: ConfigChecker, path: str, node: Node, section: Section, own: Signature
) -> Node:
    """The data of one loader: a component, or pipes."""
    if has_pipes(node):
        return expand_pipes(checker, path, node, own)
    return checker.spec(path, node, section.kind, own)


def is_mapping_of_specs(node: Node) -> bool:
    """Whether a mapping contains specs by name, and is not a spec itself."""
    children = node.mapping.values()
    return bool(children) and not is_spec(node) and all(child.is_mapping for child in children)


def _place(own: Signature) -> Place:
    if own.definition is None:
        return Place(own.owner)
    module = own.definition.module
    return Place(display_name(module.file), own.definition.node.lineno, 1)


SHARED_KEYS = ("accumulate", "noise", "noise_decay")
"""Keys of the section that apply to all of several optimizers."""


def has_members(section: Section, node: Node) -> bool:
    """Whether a section contains several specs by name instead of one."""
    if not section.members or is_spec(node):
        return False
    return any(is_spec(child) for child in node.mapping.values())


def member_signature(section: Section, finder: ModuleFinder) -> Signature:
    """The keys of each of several specs, besides those of its component."""
    return section_signature(replace(section, options=section.members, keys=()), finder)


def expand_shared_keys(
    checker: ConfigChecker, path: str, node: Node, own: Signature
) -> dict[str, Node]:
    """The keys that apply to all of several optimizers, expanded."""
    shared = tuple(item for item in own.parameters if item.name in SHARED_KEYS)
    keys = {name: child for name, child in node.mapping.items() if name in SHARED_KEYS}
    signature = replace(own, parameters=shared)
    found = checker.entries(path, node.with_entries(keys), (signature,), Place(own.owner))
    return dict(found.mapping)


def expand_members(checker: ConfigChecker, section: Section, node: Node, own: Signature) -> Node:
    """The section with each of its specs expanded; mistakes go into ``checker``."""
    entries = expand_shared_keys(checker, section.name, node, own)
    members = member_signature(section, checker.finder)
    for name, child in node.mapping.items():
        path = f"{section.name}.{name}"
        if name in SHARED_KEYS:
            continue
        if own.get(name) is not None:
            what = f"{name!r} must be set for each of several optimizers"
            checker.report(path, what, child.key_place, f"write it in each that needs {name}")
        elif not child.is_mapping:
            what = f"{describe_unknown(name)} beside several optimizers"
            hint = f"write {name}: {{type: ...}} for one more of them, or move it into one"
            checker.report(path, what, child.key_place, hint)
        else:
            entries[name] = _member(checker, path, child, section, members)
    return node.with_entries(entries)


def _member(
    checker: ConfigChecker, path: str, node: Node, section: Section, own: Signature
) -> Node:
    expanded = checker.spec(path, node.without("schedule"), section.kind, own)
    schedule = node.mapping.get("schedule")
    if schedule is None or schedule.value is None:
        return expanded
    where = SECTIONS["schedule"]
    keys = section_signature(where, checker.finder)
    made = checker.spec(f"{path}.schedule", schedule, where.kind, keys)
    return expanded.with_entries({**expanded.mapping, "schedule": made})
