"""Commented YAML templates of sections and components."""

from __future__ import annotations

import textwrap
from typing import TYPE_CHECKING

from epochal.check.export.schema import find_component, registry_with_project
from epochal.check.sections.sections import (
    LOADER_SECTIONS,
    SECTIONS,
    Section,
    section_signature,
)
from epochal.check.signatures.parameters import MISSING, Absent, Opaque, Plain
from epochal.check.signatures.signature import read_signature
from epochal.check.values.types import describe_type, parse_type
from epochal.registry.component_names import KINDS

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from epochal.check.signatures.parameters import Signature
    from epochal.registry.registry import Registry

_WIDTH = 96


def yaml_template(name: str = "", registry: Registry | None = None) -> str:
    """Commented YAML of a section, a kind or a component; of a whole config without a name.

    Required options have no value, all others their defaults. Any other name is an
    UnknownComponentError.
    """
    registry = registry_with_project(registry)
    if not name:
        blocks = [_section(section, registry) for section in SECTIONS.values()]
        return "\n".join(_text(block) for block in blocks)
    if name in SECTIONS:
        return _text(_section(SECTIONS[name], registry))
    if name in KINDS:
        known = (*SECTIONS.values(), *LOADER_SECTIONS)
        section = next(item for item in known if item.kind == name)
        return _text(_section(section, registry))
    return _text(_component(name, registry))


def _text(lines: Iterable[str]) -> str:
    return "".join(f"{line}\n" for line in lines)


def _component(name: str, registry: Registry) -> Iterator[str]:
    signature = find_component(name, registry)
    yield from _comment(f"{signature.owner}: {signature.summary}" if signature.summary else name)
    yield f"type: {name}"
    yield from _options(signature)
    if signature.open:
        yield "# and any other argument"


def _section(section: Section, registry: Registry) -> Iterator[str]:
    yield from _comment(section.doc)
    if section.shape in ("free", "value"):
        yield _entry(section.name, section.default)
        return
    own = section_signature(section, registry.finder)
    if section.shape == "options":
        yield f"{section.name}:"
        yield from (f"  {part}" for line in _options(own) for part in line.split("\n"))
        return
    if section.shape == "stages":
        first, *others = _options(own)
        yield f"# {section.name}:"
        yield f"#   - {first}"
        yield from (f"#     {line}" for line in others)
        return
    for short in registry.names(section.kind):
        found = read_signature(registry.find(section.kind, short), registry.finder)
        yield from _comment(f"  type: {short}  {found.summary}".rstrip())
    first, rest = _SHAPES[section.shape]
    lines = ["type: package.module.Class", *_options(own)]
    yield f"# {section.name}:"
    if section.shape == "splits":
        yield "#   train:"
    yield f"# {first}{lines[0]}"
    yield from (f"# {rest}{line}" for line in lines[1:])


_SHAPES = {
    "spec": ("  ", "  "),
    "specs": ("  - ", "    "),
    "terms": ("  - ", "    "),
    "splits": ("    ", "    "),
}


def _options(signature: Signature) -> Iterator[str]:
    for item in signature.parameters:
        yield from _comment(item.doc)
        if item.is_required:
            yield f"{item.name}:  # required: {describe_type(parse_type(item.annotation))}"
        elif isinstance(item.default, Opaque):
            yield f"# {item.name}: {item.default.text}"
        else:
            yield _entry(item.name, item.default)


def _entry(name: str, value: Plain | Absent) -> str:
    from epochal.config import dump

    return dump({name: None if value is MISSING else value}, "yaml").rstrip()


def _comment(text: str) -> list[str]:
    return [f"# {line}" for line in textwrap.wrap(text, _WIDTH)]
