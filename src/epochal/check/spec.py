"""Splits the spec of a component into its factory, its arguments and the section's options."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, final

from epochal.check.sections.sections import SECTIONS, section_signature
from epochal.check.signatures.parameters import Opaque, Plain, Signature
from epochal.check.signatures.signature import read_signature
from epochal.check.values.types import ANY, Type, fits, is_spec, parse_type
from epochal.config.condition import parse_condition
from epochal.config.duration import parse_duration
from epochal.config.node import Node, from_plain
from epochal.config.problems import join
from epochal.errors import ConfigError, Problem
from epochal.registry.component_names import ANY_KIND, Factory

if TYPE_CHECKING:
    from epochal.registry import Registry


@final
@dataclass(frozen=True, slots=True)
class Spec:
    """A component's factory, and the keys of its spec by owner."""

    path: str
    """Its path in the config, such as ``hooks.0``."""

    factory: Factory
    signature: Signature
    arguments: Mapping[str, Node]
    """Arguments of the factory, by config key."""

    section_signature: Signature
    options: Mapping[str, Node]
    """Options of the section, by config key."""


def read_spec(
    node: Node,
    registry: Registry,
    *,
    section: str = "",
    path: str = "",
    kind: str = "",
    own: Signature | None = None,
) -> Spec:
    """Split a spec by owner; ``section`` is the top-level key it is in, empty when nested.

    ``kind`` is the kind of component, by default that of the section.

    ``own`` are the keys that do not belong to the component; by default those of the section.
    ConfigError if it has no ``type``, or one that names no component.
    """
    where = SECTIONS.get(section)
    path = path or section
    name = node.mapping["type"].value if "type" in node.mapping else node.value
    if not isinstance(name, str):
        raise ConfigError(
            Problem(path, "has no type", node.place, "add type: package.module.Class")
        )
    kind = kind or (where.kind if where is not None else ANY_KIND)
    factory = registry.find(kind, name, node.place, key=f"{path}.type")
    if own is None and where is not None:
        own = section_signature(where, registry.finder)
    own = own or Signature(f"section {section!r}")
    keys = {item.name for item in own.parameters}
    rest = {key: child for key, child in node.mapping.items() if key != "type"}
    return Spec(
        path,
        factory,
        read_signature(factory, registry.finder),
        MappingProxyType({key: child for key, child in rest.items() if key not in keys}),
        own,
        MappingProxyType({key: child for key, child in rest.items() if key in keys}),
    )


@final
@dataclass(frozen=True, slots=True)
class Arguments:
    """The arguments of a call: ``factory(*positional, **keyword)``."""

    positional: tuple[Plain, ...]
    """Empty unless an argument can only be given by position."""

    keyword: dict[str, Plain]


def build_arguments(
    values: Mapping[str, Node],
    signature: Signature,
    *,
    makers: Mapping[str, Maker] | None = None,
    build: Build | None = None,
    path: str = "",
) -> Arguments:
    """The arguments of a factory, each converted to the type of its parameter.

    The key ``for`` sets a parameter ``for_``. ``build(node, path)`` builds the object of a
    nested spec; without it such specs stay nodes. ConfigError if a value that comes before others
    by position is missing.
    """
    made = {}
    for key, node in values.items():
        parameter = signature.get(key)
        annotation = parameter.annotation if parameter is not None else ""
        name = parameter.argument if parameter is not None else key
        here = join(path, key)
        made[name] = convert_value(node, annotation, makers=makers, build=build, path=here)
    return _by_position(made, signature, path)


def _by_position(made: dict[str, Plain], signature: Signature, path: str) -> Arguments:
    variadic = signature.variadic
    several = made.pop(variadic.argument, ()) if variadic is not None else ()
    if not isinstance(several, list | tuple):  # a spec in place of the list
        several = (several,)
    placed = [item for item in signature.before_variadic() if several or item.kind == "positional"]
    while placed and not several and placed[-1].argument not in made:
        placed.pop()
    positional = []
    for item in placed:
        if item.argument not in made and (item.is_required or isinstance(item.default, Opaque)):
            what = f"missing; {signature.owner} takes it by position, before the other values"
            raise ConfigError(Problem(f"{path}.{item.name}", what, hint=f"add {item.name}: ..."))
        default = (
            convert_value(item.default, item.annotation) if item.argument not in made else None
        )
        positional.append(made.pop(item.argument, default))
    return Arguments((*positional, *several), made)


Maker = Callable[[Plain], Plain]
Build = Callable[[Node, str], Plain]

_MAKERS: dict[str, Maker] = {
    "duration": parse_duration,
    "condition": parse_condition,
    "path": Path,
}


def convert_value(
    value: Plain,
    annotation: str,
    *,
    makers: Mapping[str, Maker] | None = None,
    build: Build | None = None,
    path: str = "",
) -> Plain:
    """A config value, converted to the type that ``annotation`` names.

    Lists become tuples, whole numbers floats, texts paths or durations, as the type requires.
    ``makers`` are constructors of further types, by name: ``{"every": Every.parse}``.
    """
    known = _MAKERS | dict(makers or {})

    def convert(node: Node, wanted: Type, path: str) -> Plain:
        if is_spec(node):
            return node if build is None else build(node, path)
        if wanted.name == "union":
            fitting = [part for part in wanted.args if part != ANY and fits(node, part)]
            return convert(node, fitting[0] if fitting else ANY, path)
        if node.is_list:
            inner = wanted.args or (ANY,)
            inner = inner if wanted.name == "tuple" else inner[:1] * len(node.elements)
            pairs = enumerate(zip(node.elements, inner, strict=False))
            children = [convert(child, part, join(path, str(i))) for i, (child, part) in pairs]
            return {"tuple": tuple, "tuples": tuple, "set": set}.get(wanted.name, list)(children)
        if node.is_mapping:
            part = wanted.args[0] if wanted.name == "dict" else ANY
            return {k: convert(child, part, join(path, k)) for k, child in node.mapping.items()}
        if wanted.name == "float" and type(node.value) is int:
            return float(node.value)
        maker = known.get(wanted.name)
        return node.value if maker is None or node.value is None else maker(node.value)

    node = value if isinstance(value, Node) else from_plain(value)
    return convert(node, parse_type(annotation), path)
