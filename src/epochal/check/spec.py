"""The spec of one component, taken apart for whoever builds it."""

from __future__ import annotations

from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, final

from epochal.check.convert import convert
from epochal.check.literals import Opaque, Plain
from epochal.check.parameters import Signature
from epochal.check.sections import SECTIONS, own_signature
from epochal.check.signature import read_signature
from epochal.errors import ConfigError, Problem
from epochal.registry.factories import ANY_KIND, Factory

if TYPE_CHECKING:
    from collections.abc import Mapping

    from epochal.check.convert import Build, Maker
    from epochal.config.node import Node
    from epochal.registry import Registry


@final
@dataclass(frozen=True, slots=True)
class Spec:
    """A component's factory, and its keys parted by owner."""

    path: str
    """Where it stands in the config, such as ``hooks.0``."""

    factory: Factory
    signature: Signature
    arguments: Mapping[str, Node]
    """What the factory is called with, by config key."""

    own_signature: Signature
    options: Mapping[str, Node]
    """What belongs to the section, by config key."""


def read_spec(
    node: Node,
    registry: Registry,
    *,
    section: str = "",
    path: str = "",
    own: Signature | None = None,
) -> Spec:
    """Take a spec apart; ``section`` is the top-level key it stands in, empty when nested.

    ``own`` are the keys that are not its component's, if they are not those of the section.

    Raises:
        UnknownComponentError: Its ``type`` leads to no component.
        ConfigError: It is no spec at all.
    """
    where = SECTIONS.get(section)
    path = path or section
    name = node.mapping["type"].value if "type" in node.mapping else node.value
    if not isinstance(name, str):
        raise ConfigError(
            Problem(path, "has no type", node.place, "add type: package.module.Class")
        )
    kind = where.kind if where is not None else ANY_KIND
    factory = registry.find(kind, name, node.place, key=f"{path}.type")
    if own is None and where is not None:
        own = own_signature(where, registry.library)
    own = own or Signature(f"section {section!r}")
    keys = {item.name for item in own.parameters}
    rest = {key: child for key, child in node.mapping.items() if key != "type"}
    return Spec(
        path,
        factory,
        read_signature(factory, registry.library),
        MappingProxyType({key: child for key, child in rest.items() if key not in keys}),
        own,
        MappingProxyType({key: child for key, child in rest.items() if key in keys}),
    )


@final
@dataclass(frozen=True, slots=True)
class Arguments:
    """What a factory is called with: ``factory(*positional, **keyword)``."""

    positional: tuple[Plain, ...]
    """Empty unless something can only be given by position."""

    keyword: dict[str, Plain]


def arguments(
    values: Mapping[str, Node],
    signature: Signature,
    *,
    makers: Mapping[str, Maker] | None = None,
    build: Build | None = None,
    path: str = "",
) -> Arguments:
    """Arguments of a factory: each value as the type that its parameter names.

    ``for`` becomes ``for_`` where the parameter is called so. ``build(node, path)`` makes the
    object of a nested spec; without it such specs stay nodes.

    Raises:
        ConfigError: A value that must come before others by position is not known.
    """
    made = {}
    for key, node in values.items():
        parameter = signature.get(key)
        annotation = parameter.annotation if parameter is not None else ""
        name = parameter.argument if parameter is not None else key
        here = f"{path}.{key}" if path else key
        made[name] = convert(node, annotation, makers=makers, build=build, path=here)
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
            what = f"missing; {signature.owner} takes it by position, before what else is given"
            raise ConfigError(Problem(f"{path}.{item.name}", what, hint=f"add {item.name}: ..."))
        default = convert(item.default, item.annotation) if item.argument not in made else None
        positional.append(made.pop(item.argument, default))
    return Arguments((*positional, *several), made)
