"""Checks the entries of a config against signatures, and fills in their defaults."""

from __future__ import annotations

from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING, final

from epochal.check.signatures.parameters import Opaque, Parameter, Signature
from epochal.check.signatures.signature import read_signature
from epochal.check.values.object_types import find_misfits, spec_hint
from epochal.check.values.types import (
    describe_type,
    find_problem_place,
    find_type_problem,
    hint_for,
    is_callable_path,
    is_spec,
    nested_kind,
    parse_type,
)
from epochal.check.values.unknown_keys import describe_unknown, suggest_key
from epochal.config.node import NOWHERE, Node, from_plain
from epochal.config.scalar import show
from epochal.config.source_file import display_name
from epochal.errors import ConfigError, Place, Problem

if TYPE_CHECKING:
    from collections.abc import Iterable

    from epochal.check.signatures.parameters import Plain
    from epochal.registry import Factory, Registry
    from epochal.registry.module_finder import ModuleFinder
    from epochal.registry.parsed_module import Definition

_NO_KEYS = Signature("")
_FEW = 3  # names that a hint can list


@final
@dataclass(frozen=True, slots=True)
class Default:
    """A value that the config does not set."""

    key: str
    value: Plain | Opaque
    """``Opaque`` if it is known only after running the owner's code; then it is not filled in."""

    owner: str
    """The component or section whose default it is."""


@final
@dataclass(slots=True)
class ConfigChecker:
    """Checks parts of one config; collects mistakes, defaults and factories."""

    registry: Registry
    broken: frozenset[str] = frozenset()
    """Dotted prefixes whose included file could not be read."""

    reported: frozenset[str] = frozenset()
    """Keys with a mistake that loading the config reported."""

    problems: list[Problem] = field(default_factory=list)
    defaults: list[Default] = field(default_factory=list)
    factories: dict[str, Factory] = field(default_factory=dict)
    """The factory of each spec that could be resolved, by path."""

    @property
    def finder(self) -> ModuleFinder:
        """Finds the source of components."""
        return self.registry.finder

    def report(self, key: str, what: str, place: Place | None, hint: str = "") -> None:
        """Add one mistake."""
        self.problems.append(Problem(key, what, None if place == NOWHERE else place, hint))

    def is_broken(self, path: str) -> bool:
        """Whether a file that could not be read may contain what is missing at ``path``."""
        return any(not b or path == b or path.startswith(f"{b}.") for b in self.broken)

    def is_known_bad(self, path: str) -> bool:
        """Whether the value at ``path`` itself was reported earlier."""
        return path in self.reported or path in self.broken

    def has_any(self, path: str) -> bool:
        """Whether anything at or below ``path`` has been reported."""
        keys = (*self.reported, *(problem.key for problem in self.problems))
        return any(key == path or key.startswith(f"{path}.") for key in keys)

    def find_definition(self, path: str) -> Definition | None:
        """The source of the component at ``path``; None if it could not be read."""
        factory = self.factories.get(path)
        if factory is None or factory.file is None:
            return None
        return self.finder.find_definition(factory.dotted)

    def spec(self, path: str, node: Node, kind: str, own: Signature = _NO_KEYS) -> Node:
        """A component's spec, expanded; a bare name is a spec without arguments."""
        if self.is_known_bad(path) and not node.is_mapping:
            return node
        if isinstance(node.value, str):
            entry = Node(node.value, node.place, node.key_place, node.layer)
            node = Node(MappingProxyType({"type": entry}), node.place, node.key_place, node.layer)
        if not node.is_mapping:
            what = f"expected a mapping with a type, got {show(node.to_plain())}"
            self.report(path, what, node.place, "write {type: package.module.Class}")
            return node
        factory = self._factory(path, node, kind)
        if factory is None:  # keys of the section can still be checked
            owned = {key: item for key in node.mapping if (item := own.get(key)) is not None}
            for key, item in owned.items():
                self.value(f"{path}.{key}", node.mapping[key], item, own.owner)
            return node
        self.factories[path] = factory
        signature = read_signature(factory, self.finder)
        self._check_owners(path, node, own, signature)
        return self.entries(path, node, (own, signature), _default_place(factory))

    def _check_owners(self, path: str, node: Node, own: Signature, signature: Signature) -> None:
        """Report required arguments that a key of the section hides."""
        for item in signature.parameters:
            if item.is_required and own.get(item.name) is not None:
                what = f"{signature.owner} requires it, but it is a key of {own.owner}"
                hint = "give the argument another name or a default"
                self.report(f"{path}.{item.name}", what, _best_place(node), hint)

    def _factory(self, path: str, node: Node, kind: str) -> Factory | None:
        name = node.mapping.get("type")
        key = f"{path}.type"
        if name is None:
            if not self.is_broken(key):
                names = self.registry.names(kind)
                is_short = 0 < len(names) <= _FEW
                hint = f"add type: {' or '.join(names) if is_short else 'package.module.Class'}"
                self.report(path, f"the {kind} has no type", _best_place(node), hint)
            return None
        if self.is_known_bad(key):
            return None
        if not isinstance(name.value, str):
            what = f"expected the name of a {kind}, got {show(name.to_plain())}"
            self.report(key, what, name.place)
            return None
        return self._find(kind, name.value, name.place, key)

    def _find(self, kind: str, name: str, place: Place, key: str) -> Factory | None:
        try:
            return self.registry.find(kind, name, place, key=key)
        except ConfigError as error:
            self.problems.extend(error.problems)
            return None

    def entries(
        self, path: str, node: Node, signatures: tuple[Signature, ...], origin: Place
    ) -> Node:
        """The checked entries of a mapping, with the defaults of the signatures."""
        entries: dict[str, Node] = {}
        excused = set[str]()
        for key, child in node.mapping.items():
            here = f"{path}.{key}"
            found = _find(key, signatures)
            if key == "type" and len(signatures) > 1:
                entries[key] = child
            elif found is not None:
                entries[key] = self.value(here, child, *found)
            elif any(signature.open for signature in signatures):
                entries[key] = self.nested(here, child)
            else:
                excused.add(self._unknown(here, key, child, signatures))
        self._missing(path, node, signatures, entries.keys() | excused)
        self._fill(path, entries, signatures, origin)
        self._check_positions(path, entries, signatures[-1])
        return node.with_entries(entries)

    def _unknown(self, path: str, key: str, child: Node, signatures: tuple[Signature, ...]) -> str:
        """Report an unknown key; returns the known key that was probably meant."""
        known = [item.name for signature in signatures for item in signature.parameters]
        word = "argument" if len(signatures) > 1 else "key"
        what = describe_unknown(key, signatures[-1].owner, word)
        close, hint = suggest_key(path, key, child, known)
        self.report(path, what, child.key_place, hint)
        return close

    def _missing(
        self, path: str, node: Node, signatures: tuple[Signature, ...], given: Iterable[str]
    ) -> None:
        have = set(given)
        for signature in signatures:
            for item in () if signature.is_partial else signature.parameters:
                here = f"{path}.{item.name}"
                if item.is_required and item.name not in have and not self.is_broken(here):
                    have.add(item.name)
                    what = f"missing; {signature.owner} requires it"
                    kind = describe_type(parse_type(item.annotation))
                    example = "..." if kind == "a value" else f"<{kind}>"
                    self.report(here, what, _best_place(node), f"add {item.name}: {example}")

    def _fill(
        self,
        path: str,
        entries: dict[str, Node],
        signatures: tuple[Signature, ...],
        origin: Place,
    ) -> None:
        for signature in signatures:
            for item in () if signature.is_partial else signature.parameters:
                if (
                    item.is_required
                    or item.kind == "variadic"
                    or item.name in entries
                    or f"{path}.{item.name}" in self.reported
                ):
                    continue
                self.defaults.append(Default(f"{path}.{item.name}", item.default, signature.owner))
                if not isinstance(item.default, Opaque):
                    entries[item.name] = from_plain(item.default, place=origin, layer="default")

    def _check_positions(self, path: str, entries: dict[str, Node], signature: Signature) -> None:
        """Report unknown values of parameters that come before ``*layers``."""
        variadic = signature.variadic
        given = entries.get(variadic.name) if variadic is not None else None
        if variadic is None or given is None or not given.elements:
            return
        for item in signature.before_variadic():
            if item.name not in entries and not item.is_required:
                what = f"missing; it comes before *{variadic.argument} of {signature.owner}"
                here = f"{path}.{item.name}"
                self.report(here, what, given.key_place, f"add {item.name}: ...")

    def value(self, path: str, node: Node, parameter: Parameter, owner: str) -> Node:
        """One value, checked against its parameter and expanded."""
        if self.is_known_bad(path) or (node.value is None and parameter.default is None):
            return node
        wrong = find_type_problem(node, parameter.annotation)
        if wrong is None and is_callable_path(node, parameter.annotation):
            self._find(nested_kind(path), str(node.value), node.place, path)
        if wrong is None:
            self._check_instances(path, node, parameter, owner)
            return self.nested(path, node)
        what, _, accepted = wrong.partition("; ")
        hint = accepted or hint_for(node, parameter.annotation, parameter.default)
        if owner and not owner.startswith("section"):
            what = f"{what} (argument {parameter.name!r} of {owner})"
        place = find_problem_place(node, parameter.annotation)
        self.report(path, what, place, hint)
        return node

    def _check_instances(self, path: str, node: Node, parameter: Parameter, owner: str) -> None:
        """Report plain values where the signature requires an object."""
        for below, value, wanted in find_misfits(node, parameter, self.finder):
            got = "a mapping without type" if value.is_mapping else show(value.value)
            what = f"expected an object of {wanted}, got {got}"
            what = f"{what} (argument {parameter.name!r} of {owner})"
            hint = spec_hint(value, wanted, self.finder)
            self.report(f"{path}{below}", what, value.place, hint)

    def nested(self, path: str, node: Node) -> Node:
        """A value with every spec inside it checked and expanded."""
        if is_spec(node):
            return self.spec(path, node, nested_kind(path))
        return node.map_children(lambda key, child: self.nested(f"{path}.{key}", child))


def _find(key: str, signatures: tuple[Signature, ...]) -> tuple[Parameter, str] | None:
    for signature in signatures:
        parameter = signature.get(key)
        if parameter is not None:
            return parameter, signature.owner
    return None


def _best_place(node: Node) -> Place:
    name = node.mapping.get("type")
    if name is not None:
        return name.place
    return node.key_place if node.key_place != NOWHERE else node.place


def _default_place(factory: Factory) -> Place:
    if factory.file is None:
        return Place(factory.dotted)
    return Place(display_name(factory.file), factory.line, 1)
