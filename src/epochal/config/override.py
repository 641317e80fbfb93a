"""Changes of a config: variants in its file, and overrides such as ``optim.lr=1e-3``."""

from __future__ import annotations

from dataclasses import replace
from types import MappingProxyType
from typing import TYPE_CHECKING

from epochal.config import scalar
from epochal.config.inherit import BASE
from epochal.config.merge import PathError, assign, relabel
from epochal.config.node import Node, from_plain
from epochal.config.problems import MAX_DEPTH, Findings, join
from epochal.config.source_file import SourceText
from epochal.config.type_aliases import rename_path, rename_value
from epochal.errors import COMMAND_LINE, suggest

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

VARIANTS = "variants"
SWEEP = "sweep"
_SPACES = ("space", "parameters")  # ours, and that of W&B
_STRUCTURED = ("[", "{", '"', "'", "!")


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
    what = f"expected a mapping, got {'a list' if node.is_list else scalar.show(node.value)}"
    hint = "write `variants: {wide: {model.width: 1024}}`"
    findings.report(path, what, node.place, hint)


def apply_trial(root: Node, values: Mapping[str, object], findings: Findings) -> Node:
    """The config with the values of a trial, by dotted key; their place is that of the range."""
    section = root.get(SWEEP)
    spaces = [section.mapping[name] for name in _SPACES if name in section.mapping]
    for key, value in values.items():
        found = (_find_written(one, key.split(".")) for one in spaces)
        written = next((one for one in found if one is not None), section)
        node = from_plain(value, place=written.place, layer=SWEEP)
        try:
            root = assign(root, rename_path(key), replace(node, key_place=written.key_place))
        except PathError as error:
            findings.report(f"sweep.space.{key}", str(error), written.key_place, error.hint)
    return root


def _find_written(here: Node, parts: Sequence[str]) -> Node | None:
    """The range of a key, which may be written with dots or nested."""
    if not parts:
        return here
    mapping = here.mapping.get("parameters", here).mapping
    for size in range(len(parts), 0, -1):
        inner = mapping.get(".".join(parts[:size]))
        found = None if inner is None else _find_written(inner, parts[size:])
        if found is not None:
            return found
    return None


def apply_overrides(root: Node, overrides: Sequence[str], findings: Findings) -> Node:
    """The config with all overrides applied in order, so that the last of a key wins."""
    for written in overrides:
        change = parse_override(written, findings)
        if change is None:
            continue
        path, node = change
        try:
            root = assign(root, path, node)
        except PathError as error:
            if findings.is_unknown(path):
                continue
            hint = error.hint or suggest(path, (known for known, _ in root.iter_leaves()))
            findings.report(path, str(error), node.key_place, hint)
    return root


def parse_override(written: str, findings: Findings) -> tuple[str, Node] | None:
    """The path and value of a text such as ``optim.lr=1e-3``; None if it is malformed.

    A value that starts with a bracket, a quote or a tag is read as YAML; anything else is
    one word, so that a text with a colon needs no quotes.
    """
    text = SourceText(COMMAND_LINE, written.replace("\r", " ").replace("\n", " "))
    key, equals, _ = written.partition("=")
    start = len(key) + 1
    key = key.strip()
    place = text.place(0, len(key))
    problem, hint = _key_problem(key, bool(equals))
    if problem:
        findings.report(key or repr(written), problem, place, hint)
        return None
    node = _read_value(text, start, key, findings)
    if node is None:
        return None
    path = rename_path(key)
    return path, replace(rename_value(node, path, findings), key_place=place)


def _key_problem(key: str, has_equals: bool) -> tuple[str, str]:
    name = key.lstrip("-") or "key"
    if not has_equals or key.startswith("-"):
        what = "has no dashes" if has_equals else "sets a value"
        return f"an override {what}, got {key!r}", f"write {name}=VALUE"
    if not key or not all(key.split(".")) or any(char.isspace() for char in key):
        return f"{key!r} is not a path of keys", "write section.key=VALUE"
    if key.split(".")[0] in {BASE, VARIANTS}:
        return "cannot be set on the command line", "set it in the file"
    return ("is nested too deep", "") if key.count(".") >= MAX_DEPTH - 1 else ("", "")


def _read_value(text: SourceText, start: int, key: str, findings: Findings) -> Node | None:
    value = text.text[start:]
    begin = start + len(value) - len(value.lstrip())
    place = text.place(begin, len(text.text.rstrip()))
    if value.strip().startswith(_STRUCTURED):
        return _read_structured(text, begin, key, findings)
    try:
        return Node(scalar.resolve(value.strip()), place, layer=COMMAND_LINE)
    except ValueError as error:
        findings.report(key, f"{error}, got {value.strip()[:40]}", place)
        return None


def _read_structured(text: SourceText, begin: int, key: str, findings: Findings) -> Node | None:
    from epochal.config.read_yaml import read_yaml

    own = Findings()
    node = read_yaml(text, own, layer=COMMAND_LINE, start=begin)
    for problem in own.problems:
        hint = problem.hint or "put quotes around the whole value"
        findings.report(key, problem.what, problem.place, hint)
    return None if own.problems else node
