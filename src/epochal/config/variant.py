"""Variants: several named experiments in one file."""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING

from epochal.config.merge import PathError, assign, relabel
from epochal.config.problems import Findings, join
from epochal.config.scalar import show
from epochal.config.type_aliases import rename_path
from epochal.errors import suggest

if TYPE_CHECKING:
    from collections.abc import Mapping

    from epochal.config.node import Node

VARIANTS = "variants"


def split_variants(root: Node, findings: Findings) -> tuple[Node, Mapping[str, Node]]:
    """The config without its ``variants`` section, and the variants by name."""
    section = root.mapping.get(VARIANTS)
    if section is None:
        return root, MappingProxyType({})
    variants: dict[str, Node] = {}
    if not section.is_mapping:
        _report_shape(findings, VARIANTS, section)
    for name, variant in section.mapping.items():
        if variant.is_mapping:
            variants[name] = variant
        else:
            _report_shape(findings, join(VARIANTS, name), variant)
    return root.without(VARIANTS), MappingProxyType(variants)


def apply_variant(root: Node, variants: Mapping[str, Node], name: str, findings: Findings) -> Node:
    """The config with the named variant applied; its dotted keys set nested values."""
    variant = variants.get(name)
    if variant is None and findings.is_unknown(VARIANTS):
        return root
    if variant is None:
        hint = suggest(name, variants) or "the file has no variants"
        findings.report(VARIANTS, f"there is no variant {name!r}", hint=hint)
        return root
    for key, child in relabel(variant, "variant").mapping.items():
        path = join(join(VARIANTS, name), key)
        try:
            root = assign(root, rename_path(key), child)
        except PathError as error:
            findings.report(path, str(error), child.key_place, error.hint)
    return root


def _report_shape(findings: Findings, path: str, node: Node) -> None:
    what = f"expected a mapping, got {'a list' if node.is_list else show(node.value)}"
    hint = "write `variants: {wide: {model.width: 1024}}`"
    findings.report(path, what, node.place, hint)
