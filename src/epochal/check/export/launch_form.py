"""The form that launches a config: its fields with all choices, and the changes that it accepts.

A change is accepted only if it is a value of a field that the form shows. So no change can be a
path, a module, a reference such as ``${env:NAME}``, or a key that the form does not have.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, final

from epochal.check.export.own_classes import own_classes
from epochal.check.sections.form_fields import (
    FormField,
    choose_fields,
    component_fields,
    find_signature,
    list_fields,
)
from epochal.check.signatures.parameters import Signature
from epochal.check.values.types import find_type_problem, hint_for
from epochal.config import dump
from epochal.config.node import Node, from_plain
from epochal.config.problems import Findings
from epochal.config.read_yaml import read_yaml
from epochal.config.scalar import DELETE, resolve
from epochal.config.source_file import SourceText
from epochal.errors import Place, Problem, suggest

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from epochal.registry.registry import Registry

TEXT_NAME = "text"
"""The name of the text of a form in the places of problems."""

MAX_ITEMS = 50
_MAX_TEXT = 200
_TEXT = re.compile(r"(?:[\w.,:+=@%()*! -]|\{[\w/:.+-]*\})*")
_TYPED = re.compile(r"[\w./<>=+ -]*")
"""Texts that are parsed: durations, and conditions such as ``val/acc >= 0.9``."""

_DOTTED = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)+")
_OWN = ("task", "model", "data", "loss", "metric", "hook", "schedule", "average", "optimizer")
_WITHOUT_BASE = ("model", "data", "loss", "metric")


@final
@dataclass(frozen=True)
class FormChoice:
    """A component that a field offers."""

    name: str
    """The name in the form: registered names, and class names of the project."""

    target: str
    """The name in the config."""

    doc: str
    fields: tuple[FormField, ...]
    """Its arguments; in a list their keys begin with the name of the list."""


@final
@dataclass(frozen=True)
class LaunchForm:
    """The fields of a form, and the components that some of them offer."""

    root: Node
    """The expanded config."""

    fields: tuple[FormField, ...]
    choices: Mapping[str, tuple[FormChoice, ...]] = field(default_factory=dict)
    """By the key of the field."""

    def find_choice(self, key: str, name: object) -> FormChoice | None:
        """The component that a name means in a field."""
        return next((one for one in self.choices[key] if one.name == name), None)

    def current(self, one: FormField, node: Node | None = None) -> FormChoice | None:
        """The component that the config has."""
        target = (one.node if node is None else node).get("type").value
        return next((choice for choice in self.choices[one.key] if choice.target == target), None)

    def to_text(self) -> str:
        """The values of all fields as YAML, which ``read_text`` reads."""
        tree: dict[str, Any] = {}
        for one in self.fields:
            if one.type == "list":
                tree[one.key] = [self.show_item(one, node) for node in one.node.elements]
                continue
            if one.type != "component":
                _put(tree, one.key, one.node.value)
                continue
            choice = self.current(one)
            if one.is_nullable and one.node.value is None:
                _put(tree, one.key, None)
            if choice is not None:
                _put(tree, f"{one.key}.type", choice.name)
                for inner in choice.fields:
                    if not inner.is_default:
                        _put(tree, inner.key, inner.node.value)
        return dump(tree, "yaml") if tree else ""

    def show_item(self, one: FormField, node: Node) -> dict[str, Any]:
        """An element of a list as the form shows it; empty if the form does not offer it."""
        choice = self.current(one, node)
        if choice is None:
            return {}
        shown = {inner.key.rpartition(".")[2] for inner in choice.fields}
        values = {
            key: child.value
            for key, child in node.mapping.items()
            if key in shown and child.layer != "default" and not (child.is_list or child.is_mapping)
        }
        return {"type": choice.name, **values}


def build_form(root: Node, registry: Registry) -> LaunchForm:
    """The form of a checked and expanded config; nothing that it names is imported."""
    fields = tuple(choose_fields(root, list_fields(root, registry)))
    kinds = {one.kind for one in fields if one.kind}
    own = own_classes(registry) if kinds & {*_OWN} else ()
    names = {
        kind: [
            *registry.names(kind),
            *(one.dotted for one in own if kind in one.kinds and one.kinds != _WITHOUT_BASE),
        ]
        for kind in kinds
    }
    choices = {
        one.key: tuple(_list_choices(one, names[one.kind], registry)) for one in fields if one.kind
    }
    return LaunchForm(root, fields, choices)


def _list_choices(one: FormField, names: Sequence[str], registry: Registry) -> Iterator[FormChoice]:
    """The components of a field: those that the config has, and others that can be built."""
    present = [one.node] if one.type == "component" else [*one.node.elements]
    nodes = {
        str(node.get("type").value): node for node in reversed(present) if node.value is not None
    }
    shorts = [name.rpartition(".")[2] for name in dict.fromkeys([*nodes, *names])]
    is_any_case = {name.lower() for name in nodes}
    for target in dict.fromkeys([*nodes, *names]):
        signature = find_signature(registry, one.kind, target)
        if signature is None or (target not in nodes and target.lower() in is_any_case):
            continue
        # Arguments that two components share keep their values; a list offers defaults.
        node = one.node if one.type == "component" else Node(None)
        inner = tuple(
            item
            for item in component_fields(one.key, node, signature, one.own or Signature(""))
            if not item.is_free
        )
        shown = {item.key.rpartition(".")[2] for item in inner}
        needed = {item.name for item in signature.parameters if item.is_required}
        if target in nodes or needed <= shown:
            short = target.rpartition(".")[2]
            name = short if shorts.count(short) == 1 else target
            yield FormChoice(name, target, signature.summary, inner)


def read_text(text: str, form: LaunchForm) -> tuple[dict[str, Any], Node, list[Problem]]:
    """The changes that a text of YAML describes, its tree for places, and its mistakes."""
    findings = Findings()
    node = read_yaml(SourceText(TEXT_NAME, text), findings, layer="file") if text.strip() else None
    if node is None or findings.problems:
        return {}, node or Node(None), list(findings.problems)
    if not node.is_mapping:
        problem = Problem(TEXT_NAME, "expected lines `key: value`", node.place)
        return {}, node, [problem]
    kinds = {one.key: one.type for one in form.fields}
    changes: dict[str, Any] = {}
    waiting = [("", node)]
    for path, here in waiting:
        if here.is_mapping and (here.mapping or not path) and kinds.get(path) != "list":
            waiting += [(f"{path}.{key}" if path else key, c) for key, c in here.mapping.items()]
        elif path.endswith(".type") and kinds.get(path.removesuffix(".type")) == "component":
            changes[path.removesuffix(".type")] = here.to_plain()
        else:
            changes[path] = here.to_plain()
    return changes, node, []


def check_changes(
    form: LaunchForm, changes: Mapping[str, Any], written: Node | None = None
) -> tuple[dict[str, Any], list[Problem]]:
    """The values to set by dotted key of the config, and what cannot be accepted.

    ``written`` is the tree of a text, for the places of the problems.
    """
    checker = _ChangeChecker(form, changes, written or Node(None))
    checker.check()
    return checker.values, checker.problems


@final
class _ChangeChecker:
    def __init__(self, form: LaunchForm, changes: Mapping[str, Any], written: Node) -> None:
        self.values: dict[str, Any] = {}
        self.problems: list[Problem] = []
        self._form, self._changes, self._written = form, changes, written

    def check(self) -> None:
        known: dict[str, FormField] = {}
        for one in self._form.fields:
            known[one.key] = one
            if one.type == "component":
                choice = self._choose(one)
                inner = () if choice is None else choice.fields
                known |= {field.key: field for field in inner}
        for key, value in self._changes.items():
            if key in known:
                self._set(known[key], value)
            else:
                self._report(key, "the form has no such key", suggest(key[:80], known))

    def _set(self, one: FormField, value: object) -> None:
        if one.type == "list":
            self._set_list(one, value)
        elif one.type != "component":
            value = _read_typed(one, value)
            problem = find_problem(one, value)
            if problem is not None:
                self._report(one.key, *problem)
            elif not _is_same(one.node.value, value):
                self.values[one.key] = value

    def _choose(self, one: FormField) -> FormChoice | None:
        """The component of a field; its type, and which arguments no longer exist, are noted."""
        current = self._form.current(one)
        if one.key not in self._changes:
            return current
        named = self._changes[one.key]
        if named is None and one.is_nullable:
            if one.node.value is not None:
                self.values[one.key] = DELETE
            return None
        choice = self._form.find_choice(one.key, named) if isinstance(named, str) else None
        if choice is None:
            names = [known.name for known in self._form.choices[one.key]]
            text = named if isinstance(named, str) else ""
            self._report(one.key, "the form does not offer this", suggest(text[:80], names))
            return current
        if current is None or choice.target != current.target:
            kept = {inner.key for inner in choice.fields}
            kept |= {f"{one.key}.{item.name}" for item in (one.own.parameters if one.own else ())}
            self.values[f"{one.key}.type"] = choice.target
            self.values |= {
                f"{one.key}.{key}": DELETE
                for key, child in one.node.mapping.items()
                if key != "type" and child.layer != "default" and f"{one.key}.{key}" not in kept
            }
        return choice

    def _set_list(self, one: FormField, value: object) -> None:
        if not isinstance(value, list) or len(value) > MAX_ITEMS:
            self._report(one.key, f"needs a list of at most {MAX_ITEMS} entries")
            return
        found, unused = [], list(one.node.elements)
        for index, item in enumerate(value):
            here = f"{one.key}.{index}"
            name = item.get("type") if isinstance(item, dict) else None
            choice = self._form.find_choice(one.key, name) if isinstance(name, str) else None
            if choice is None:
                names = [known.name for known in self._form.choices[one.key]]
                self._report(here, "the form does not offer this", suggest(str(name)[:80], names))
                continue
            fields = {inner.key.rpartition(".")[2]: inner for inner in choice.fields}
            values = self._read_item(here, item, fields)
            hidden = self._take_hidden(unused, choice, fields)
            found.append({"type": choice.target, **hidden, **values})
        if found != [_written_values(node) for node in one.node.elements]:
            self.values[one.key] = found

    def _read_item(
        self, here: str, item: Mapping[str, Any], fields: Mapping[str, FormField]
    ) -> dict[str, Any]:
        values = {}
        for key, value in item.items():
            one = fields.get(key)
            if key == "type":
                continue
            if one is None:
                self._report(f"{here}.{key}", "the form has no such key", suggest(key, fields))
                continue
            typed = _read_typed(one, value)
            problem = find_problem(one, typed)
            if problem is not None:
                self._report(f"{here}.{key}", *problem)
            else:
                values[key] = typed
        return values

    def _take_hidden(
        self, unused: list[Node], choice: FormChoice, fields: Mapping[str, FormField]
    ) -> dict[str, Any]:
        """What the config sets for the next component of this type, and the form does not show."""
        for node in unused:
            if node.get("type").value == choice.target:
                unused.remove(node)
                return {
                    key: child.to_plain()
                    for key, child in node.mapping.items()
                    if key != "type" and key not in fields and child.layer != "default"
                }
        return {}

    def _report(self, key: str, what: str, hint: str = "") -> None:
        place = find_written(self._written, f"{key}.type") or find_written(self._written, key)
        self.problems.append(Problem(key[:120], what, place, hint))


def _read_typed(one: FormField, value: object) -> object:
    """The number that was typed into a text field that takes numbers, too, such as ``500``."""
    if one.type != "text" or one.is_free or not isinstance(value, str):
        return value
    number = resolve(value)
    if isinstance(number, bool) or not isinstance(number, int | float):
        return value
    is_number = find_type_problem(from_plain(number), one.annotation) is None
    is_text = find_type_problem(from_plain(value), one.annotation) is None
    return number if is_number and not is_text else value


def find_problem(one: FormField, value: object) -> tuple[str, str] | None:
    """What is wrong with a value of a field, and what to do; None if it is accepted."""
    if value is None and one.is_nullable:
        return None
    if one.type == "choice" or (one.type == "text" and value in one.choices and value is not None):
        if any(type(known) is type(value) and known == value for known in one.choices):
            return None
        return "is not one of the choices", ""
    if one.type == "bool":
        return None if isinstance(value, bool) else ("is neither true nor false", "")
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return f"is not a {one.type}", ""
    if not isinstance(value, str) and one.type == "text" and not one.annotation:
        return "is not a text", ""
    if isinstance(value, str) and one.type == "text":
        problem = _find_text_problem(value, is_free=one.is_free)
        if problem is not None:
            return problem
    elif isinstance(value, str):
        return "is not a number", ""
    elif not math.isfinite(value) or abs(value) > 1e300:
        return "is not a finite number", ""
    node = from_plain(value)
    what = find_type_problem(node, one.annotation)
    return None if what is None else (what, hint_for(node, one.annotation))


def _find_text_problem(text: str, *, is_free: bool) -> tuple[str, str] | None:
    if len(text) > _MAX_TEXT or not (_TEXT if is_free else _TYPED).fullmatch(text):
        return "has characters that a form does not accept", "use letters, digits and spaces"
    if not is_free:  # its type decides
        return None
    if _DOTTED.fullmatch(text) or text.startswith(("-", ".")) or ".." in text:
        return "looks like a path or a module", "change it in the file"
    return None


def find_written(written: Node, key: str) -> Place | None:
    """Where a text has a key, or the nearest one above it."""
    parts = key.split(".")
    for size in range(len(parts), 0, -1):
        node = written.find(".".join(parts[:size]))
        if node is not None and node.place.line:
            return node.key_place if node.key_place.line else node.place
    return None


def _written_values(node: Node) -> dict[str, Any]:
    """What a config sets for one component."""
    return {
        key: child.to_plain() for key, child in node.mapping.items() if child.layer != "default"
    }


def _is_same(one: object, other: object) -> bool:
    return type(one) is type(other) and one == other


def _put(tree: dict[str, Any], key: str, value: object) -> None:
    *parents, last = key.split(".")
    here = tree
    for part in parents:
        inner = here.setdefault(part, {})
        if not isinstance(inner, dict):
            return
        here = inner
    here[last] = value
