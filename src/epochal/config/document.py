"""One config file or object, read into a tree whose root is a mapping."""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING

from epochal.config.node import Node
from epochal.config.problems import refuse
from epochal.config.scalar import show
from epochal.config.source_file import SUFFIXES, SourceFile, SourceText, display_name
from epochal.config.type_aliases import rename_aliases

if TYPE_CHECKING:
    from collections.abc import Callable

    from epochal.config.problems import Findings
    from epochal.errors import Place

EMPTY = Node(MappingProxyType({}))


def read_document(
    source: SourceFile, findings: Findings, *, layer: str, allow_python: bool = False
) -> Node:
    """The tree of a file; empty after a mistake that leaves nothing to read.

    Raises:
        ConfigError: The file is too big, too deep, or empty.
    """
    text = SourceText(display_name(source.path), source.text)
    kind = SUFFIXES[source.path.suffix.lower()]
    if kind == "py" and not allow_python:
        what = "a Python config is run as code, which was not allowed"
        findings.report_file(text.name, what, hint="add --allow-python if you trust this file")
        return EMPTY
    known = len(findings.problems)
    node = _reader(kind)(text, findings, layer=layer)
    empty = node is None or (kind == "toml" and not node.mapping)
    if empty and len(findings.problems) == known:
        refuse(text.name, "is empty", "`epochal new` writes a config to start from")
    return EMPTY if node is None else as_config(node, findings, text)


def as_config(node: Node, findings: Findings, text: SourceText | None = None) -> Node:
    """The tree with component names under ``type``; reports a root that is not a mapping."""
    if node.is_mapping:
        return rename_aliases(node, findings)
    name = text.name if text else node.place.name
    hint = "write `key: value` lines"
    if text and text.text.lstrip().startswith(("[", "{")):
        hint = 'write {"key": value}'
    elif text and isinstance(node.value, str) and ":" in node.value:
        hint = "put a space after the colon: `key: value`"
    what = f"the top level must be a mapping, got {_kind_of(node)}"
    findings.report_file(name, what, _known(node.place), hint)
    return EMPTY


def _known(place: Place) -> Place | None:
    return place if place.line else None


def _kind_of(node: Node) -> str:
    return "a list" if node.is_list else show(node.value)[:60]


def _reader(kind: str) -> Callable[..., Node | None]:
    # Only the parser that is needed is imported.
    if kind == "toml":
        from epochal.config.read_toml import read_toml

        return read_toml
    if kind == "json":
        from epochal.config.read_json import read_json

        return read_json
    if kind == "py":
        from epochal.config.read_python import run_python

        return run_python
    from epochal.config.read_yaml import read_yaml

    return read_yaml
