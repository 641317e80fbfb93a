"""One config against signatures, key by key: mistakes on one side, the full tree on the other."""

from __future__ import annotations

from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING

from epochal.check.literals import Opaque
from epochal.check.report import Default
from epochal.check.sections import Section, own_signature, split_names
from epochal.check.signature import Parameter, Signature, read_signature
from epochal.check.types import describe, hint_for, is_spec, parse_type, problem_with
from epochal.config.node import NOWHERE, Node, from_plain
from epochal.errors import ConfigError, Place, Problem
from epochal.registry.nearest import nearest
from epochal.registry.source import shown_path
from epochal.registry.table import ANY_KIND

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from epochal.registry import Factory, Registry

_NO_KEYS = Signature("")


@dataclass(slots=True)
class Walk:
    """Checks parts of one config and collects what it finds."""

    registry: Registry
    broken: frozenset[str] = frozenset()
    """Dotted prefixes whose included file could not be read."""

    reported: frozenset[str] = frozenset()
    """Keys that have a mistake already."""

    problems: list[Problem] = field(default_factory=list)
    defaults: list[Default] = field(default_factory=list)
    factories: dict[str, Factory] = field(default_factory=dict)
    """What each spec that could be resolved names, by path."""

    def is_broken(self, path: str) -> bool:
        """Whether what is missing at ``path`` may stand in a file that could not be read."""
        return any(not b or path == b or path.startswith(f"{b}.") for b in self.broken)

    def is_known_bad(self, path: str) -> bool:
        """Whether the very value at ``path`` has been reported already."""
        return path in self.reported or path in self.broken

    def report(self, key: str, what: str, place: Place | None, hint: str = "") -> None:
        """Note one mistake."""
        self.problems.append(Problem(key, what, None if place == NOWHERE else place, hint))

    def section(self, section: Section, node: Node) -> Node:
        """A whole section, expanded."""
        path, own = section.name, own_signature(section, self.registry.library)
        if section.shape in ("free", "value"):
            return node if section.shape == "free" else self._value_section(section, node)
        if section.shape == "options":
            return self._options(path, node, own)
        if section.shape == "spec":
            return self.spec(path, node, section.kind, own)
        if section.shape == "splits":
            return self._splits(path, node, section.kind, own)
        return self._specs(path, node, section.kind, own)

    def spec(self, path: str, node: Node, kind: str, own: Signature = _NO_KEYS) -> Node:
        """A component's spec, expanded; a bare name is a spec without arguments."""
        if self.is_known_bad(path):
            return node
        if isinstance(node.value, str):
            entry = Node(node.value, node.place, node.key_place, node.layer)
            node = Node(MappingProxyType({"type": entry}), node.place, node.key_place, node.layer)
        if not node.is_mapping:
            what = f"expected a mapping with a type, got {node.to_plain()!r}"
            self.report(path, what, node.place, "write {type: package.module.Class}")
            return node
        factory = self._factory(path, node, kind)
        if factory is None:
            return node
        self.factories[path] = factory
        signature = read_signature(factory, self.registry.library)
        return self._entries(path, node, (own, signature), _default_place(factory))

    def _factory(self, path: str, node: Node, kind: str) -> Factory | None:
        name = node.mapping.get("type")
        key = f"{path}.type"
        if name is None:
            if not self.is_broken(key):
                hint = "add type: package.module.Class"
                self.report(path, f"the {kind} has no type", _best_place(node), hint)
            return None
        if self.is_known_bad(key):
            return None
        if not isinstance(name.value, str):
            what = f"expected the name of a {kind}, got {name.to_plain()!r}"
            self.report(key, what, name.place)
            return None
        try:
            return self.registry.find(kind, name.value, name.place, key=key)
        except ConfigError as error:
            self.problems.extend(error.problems)
            return None

    def _value_section(self, section: Section, node: Node) -> Node:
        path = section.name
        if section.keys and node.is_mapping:
            return self._options(path, node, Signature(f"section {path!r}", section.keys))
        parameter = Parameter(path, section.annotation, section.default)
        return self._value(path, node, parameter, f"section {path!r}")

    def _options(self, path: str, node: Node, own: Signature) -> Node:
        if not node.is_mapping:
            what = f"expected a mapping, got {node.to_plain()!r}"
            first = own.parameters[0].name if own.parameters else "key"
            self.report(path, what, node.place, f"write {path}: {{{first}: ...}}")
            return node
        return self._entries(path, node, (own,), _definition_place(own))

    def _specs(self, path: str, node: Node, kind: str, own: Signature) -> Node:
        if not node.is_list:
            what = f"expected a list, got {node.to_plain()!r}"
            self.report(path, what, node.place, f"write {path}: [{{type: ...}}]")
            return node
        elements = (
            self.spec(f"{path}.{index}", child, kind, own)
            for index, child in enumerate(node.elements)
        )
        return Node(tuple(elements), node.place, node.key_place, node.layer, node.replaced)

    def _splits(self, path: str, node: Node, kind: str, own: Signature) -> Node:
        names = split_names(self.registry.library)
        if not node.is_mapping:
            what = f"expected a mapping of splits, got {node.to_plain()!r}"
            self.report(path, what, node.place, "write data: {train: {type: ...}}")
            return node
        entries = {}
        for written, child in node.mapping.items():
            here = f"{path}.{written}"
            split = names.get(written, written if not names else "")
            if not split:
                hint = _meant(written, names)
                self.report(here, f"unknown split {written!r}", child.key_place, hint)
            elif _is_named_loaders(child):
                loaders = {
                    name: self.spec(f"{here}.{name}", loader, kind, own)
                    for name, loader in child.mapping.items()
                }
                entries[split] = _with_entries(child, loaders)
            else:
                entries[split] = self.spec(here, child, kind, own)
        return _with_entries(node, entries)

    def _entries(
        self, path: str, node: Node, signatures: tuple[Signature, ...], origin: Place
    ) -> Node:
        entries: dict[str, Node] = {}
        excused = set[str]()
        for key, child in node.mapping.items():
            here = f"{path}.{key}"
            found = _find(key, signatures)
            if key == "type" and len(signatures) > 1:
                entries[key] = child
            elif found is not None:
                entries[key] = self._value(here, child, *found)
            elif any(signature.open for signature in signatures):
                entries[key] = self._nested(here, child)
            else:
                excused.add(self._unknown(here, key, child, signatures))
        self._missing(path, node, signatures, entries.keys() | excused)
        self._fill(path, entries, signatures, origin)
        return _with_entries(node, entries)

    def _unknown(self, path: str, key: str, child: Node, signatures: tuple[Signature, ...]) -> str:
        """Report an unknown key; the known one that it was probably meant to be."""
        known = [item.name for signature in signatures for item in signature.parameters]
        close = nearest(key, known)
        owner = signatures[-1].owner
        word = "argument" if len(signatures) > 1 else "key"
        hint = f"did you mean {close!r}?" if close else _listing(known)
        self.report(path, f"unknown {word} {key!r} of {owner}", child.key_place, hint)
        return close or ""

    def _missing(
        self, path: str, node: Node, signatures: tuple[Signature, ...], given: Iterable[str]
    ) -> None:
        have = set(given)
        for signature in signatures:
            for item in signature.parameters:
                here = f"{path}.{item.name}"
                if item.is_required and item.name not in have and not self.is_broken(here):
                    have.add(item.name)
                    what = f"missing; {signature.owner} requires it"
                    kind = describe(parse_type(item.annotation))
                    self.report(here, what, _best_place(node), f"add {item.name}: <{kind}>")

    def _fill(
        self,
        path: str,
        entries: dict[str, Node],
        signatures: tuple[Signature, ...],
        origin: Place,
    ) -> None:
        for signature in signatures:
            for item in signature.parameters:
                if (
                    item.is_required
                    or item.name in entries
                    or f"{path}.{item.name}" in self.reported
                ):
                    continue
                self.defaults.append(Default(f"{path}.{item.name}", item.default, signature.owner))
                if not isinstance(item.default, Opaque):
                    entries[item.name] = from_plain(item.default, place=origin, layer="default")

    def _value(self, path: str, node: Node, parameter: Parameter, owner: str) -> Node:
        if self.is_known_bad(path) or (node.value is None and parameter.default is None):
            return node
        wrong = problem_with(node, parameter.annotation)
        if wrong is None:
            return self._nested(path, node)
        what, _, accepted = wrong.partition("; ")
        hint = accepted or hint_for(node, parameter.annotation)
        if owner and not owner.startswith("section"):
            what = f"{what} (argument {parameter.name!r} of {owner})"
        self.report(path, what, node.place, hint)
        return node

    def _nested(self, path: str, node: Node) -> Node:
        """A value in which every spec, however deep, is checked and expanded."""
        if is_spec(node):
            return self.spec(path, node, ANY_KIND)
        if node.is_mapping:
            children = {k: self._nested(f"{path}.{k}", c) for k, c in node.mapping.items()}
            return _with_entries(node, children)
        if node.is_list:
            elements = [self._nested(f"{path}.{i}", c) for i, c in enumerate(node.elements)]
            return Node(tuple(elements), node.place, node.key_place, node.layer, node.replaced)
        return node


def _find(key: str, signatures: tuple[Signature, ...]) -> tuple[Parameter, str] | None:
    for signature in signatures:
        parameter = signature.get(key)
        if parameter is not None:
            return parameter, signature.owner
    return None


def _with_entries(node: Node, entries: Mapping[str, Node]) -> Node:
    value = MappingProxyType(dict(entries))
    return Node(value, node.place, node.key_place, node.layer, node.replaced, node.template)


def _is_named_loaders(node: Node) -> bool:
    children = node.mapping.values()
    return bool(children) and not is_spec(node) and all(child.is_mapping for child in children)


def _best_place(node: Node) -> Place:
    name = node.mapping.get("type")
    if name is not None:
        return name.place
    return node.key_place if node.key_place != NOWHERE else node.place


def _default_place(factory: Factory) -> Place:
    if factory.file is None:
        return Place(factory.dotted)
    return Place(shown_path(factory.file), factory.line, 1)


def _definition_place(own: Signature) -> Place:
    if own.definition is None:
        return Place(own.owner)
    module = own.definition.module
    return Place(shown_path(module.file), own.definition.node.lineno, 1)


def _meant(name: str, known: Iterable[str]) -> str:
    close = nearest(name, known)
    return f"did you mean {close!r}?" if close else _listing(known)


def _listing(known: Iterable[str]) -> str:
    names = sorted(set(known))
    if not names:
        return "it takes none"
    more = ", ..." if len(names) > 12 else ""
    return "known: " + ", ".join(names[:12]) + more
