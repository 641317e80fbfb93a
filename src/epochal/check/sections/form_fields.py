"""Fields of the form that launches a config: which of its keys can be shown, and their types.

``launch.expose`` of the config chooses among them. A key that decides where files are written,
who is notified, or what code is imported is never a field.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Literal, final

from epochal.check.sections.section_shapes import (
    SHARED_KEYS,
    has_members,
    is_mapping_of_specs,
    member_signature,
)
from epochal.check.sections.sections import SECTIONS, section_signature
from epochal.check.signatures.parameters import MISSING, Opaque, Parameter, Signature
from epochal.check.signatures.signature import read_signature
from epochal.check.values.types import ANY, is_spec, parse_type
from epochal.config.node import Node, from_plain
from epochal.errors import ConfigError, Place, suggest

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from epochal.check.sections.sections import Section
    from epochal.check.values.checker import ConfigChecker
    from epochal.check.values.types import Type
    from epochal.config.bounds import Bound
    from epochal.config.node import Scalar
    from epochal.registry.registry import Registry

FieldType = Literal["number", "bool", "text", "choice", "component", "list"]

LOG_DIR = "record.log_dir"
"""The one key of ``record`` that can be shown: a choice among ``launch.roots``."""

_FIXED = (
    "project", "tag", "init_from", "ckp_file", "env", "imports", "experiment", "runner", "updater",
    "record", "launch", "notify",
)  # fmt: skip
"""Sections that a form never changes; ``tag`` has a field of its own, the name of the run."""

_TEXTS = ("str", "duration", "every", "condition")
_NUMBERS = ("int", "float")
_COMPONENTS = ("model", "optim", "schedule")
"""Components that a form shows if the config does not say what it exposes."""

_OPTIONAL = ("schedule", "average")
"""Components that a form adds to a config, and removes."""

_ALWAYS = ("seed", "train.for", LOG_DIR)


@final
@dataclass(frozen=True, kw_only=True, slots=True)
class FormField:
    """One key of a config that a form can show."""

    key: str
    type: FieldType
    node: Node
    """Its value now."""

    doc: str = ""
    annotation: str = ""
    choices: tuple[Scalar, ...] = ()
    is_integer: bool = False
    is_nullable: bool = False
    is_free: bool = False
    """Whether it is any text, which is shown only if ``launch.expose`` names its whole key."""

    kind: str = ""
    """Of a component or of a list of components."""

    own: Signature | None = None
    """The keys of the section beside the arguments of the component."""

    @property
    def is_default(self) -> bool:
        """Whether the config does not set it."""
        return self.node.layer == "default"

    @property
    def is_required(self) -> bool:
        """Whether it has no value yet, and needs one."""
        is_single = not self.node.is_list and not self.node.is_mapping
        return is_single and self.node.value is None and not self.is_nullable

    def find_limit(self, *keywords: str) -> float | None:
        """The bound of a number with one of these names of JSON Schema."""
        wanted = parse_type(self.annotation)
        parts = wanted.args if wanted.name == "union" else (wanted,)
        bounds: list[Bound] = [bound for part in parts for bound in part.bounds]
        return next((bound.limit for bound in bounds if bound.keyword in keywords), None)


def list_fields(root: Node, registry: Registry) -> dict[str, FormField]:
    """Every key of a checked and expanded config that a form could show."""
    found: dict[str, FormField] = {}
    for name, section in SECTIONS.items():
        node = root.mapping.get(name)
        if node is None and section.shape == "specs":
            node = from_plain([], place=Place("default"), layer="default")
        if node is None and name in _OPTIONAL:
            node = Node(None, Place("default"), layer="default")
        if node is not None and name not in _FIXED:
            for field in _section_fields(section, node, registry):
                found[field.key] = field
    roots = [one.value for one in root.get("launch.roots").elements]
    log_dir = root.get(LOG_DIR)
    if roots and isinstance(log_dir.value, str):
        choices = dict.fromkeys([log_dir.value, *(one for one in roots if isinstance(one, str))])
        doc = "The folder of runs that the record is written to."
        found[LOG_DIR] = FormField(
            key=LOG_DIR, type="choice", node=log_dir, doc=doc, choices=tuple(choices)
        )
    return found


def choose_fields(root: Node, fields: dict[str, FormField]) -> list[FormField]:
    """The fields that a form shows: those of ``launch.expose`` in its order, or the usual ones."""
    patterns = [node.value for node in root.get("launch.expose").elements]
    chosen = dict.fromkeys(
        key
        for pattern in patterns
        for key, field in fields.items()
        if (key == pattern if field.is_free else fnmatchcase(key, str(pattern)))
    )
    if not patterns:
        chosen = dict.fromkeys(key for key, field in fields.items() if _is_usual(field))
    # A component has fields of its own, so they are not shown a second time.
    shown = [fields[key] for key in chosen]
    owners = [f"{one.key}." for one in shown if one.type in ("component", "list")]
    return [one for one in shown if one.is_free or not one.key.startswith(tuple(owners))]


def _is_usual(field: FormField) -> bool:
    if field.type == "component":
        return field.key in _COMPONENTS
    return field.key in _ALWAYS or not (field.is_default or field.is_free)


def check_exposed(checker: ConfigChecker, root: Node) -> None:
    """Report entries of ``launch.expose`` that no form can show."""
    entries = root.get("launch.expose").elements
    if not entries or checker.has_any("launch"):
        return
    fields = list_fields(root, checker.registry)
    for index, node in enumerate(entries):
        text = str(node.value)
        if any(fnmatchcase(key, text) for key in fields) or checker.has_any(text.split(".")[0]):
            continue
        what, hint = f"there is no key {text!r}", suggest(text, fields)
        if text == LOG_DIR:
            what, hint = f"{text!r} needs folders to choose from", "add launch.roots: [runs, ...]"
        elif text == "tag":
            what, hint = "every form has a field for the name", "remove it"
        elif root.find(text) is not None:
            what, hint = (
                f"{text!r} cannot be shown in a form",
                "remove it, or change it in the file",
            )
        checker.report(f"launch.expose.{index}", what, node.place, hint)


def component_fields(
    path: str, node: Node, signature: Signature, own: Signature
) -> Iterator[FormField]:
    """The arguments of a component, and the keys of its section, that a form can show.

    Those that ``node`` does not set get the defaults of the signature.
    """
    for item in (*signature.parameters, *own.parameters):
        is_hidden = own.get(item.name) not in (None, item)  # a key of the section wins
        child = node.mapping.get(item.name)
        child = None if child is not None and child.layer == "default" else child
        if child is None and isinstance(item.default, Opaque):
            continue
        if child is None:
            value = None if item.default is MISSING else item.default
            child = from_plain(value, place=Place("default"), layer="default")
        field = None if is_hidden else _to_field(f"{path}.{item.name}", child, item)
        if field is not None:
            yield field


def find_signature(registry: Registry, kind: str, name: object) -> Signature | None:
    """The signature of a component; None if there is no such component."""
    if name is None:
        return None
    try:
        return read_signature(registry.find(kind, str(name)), registry.finder)
    except ConfigError:
        return None


def _section_fields(section: Section, node: Node, registry: Registry) -> Iterator[FormField]:
    own = section_signature(section, registry.finder)
    name, shape = section.name, section.shape
    if shape == "value" and not node.is_mapping:
        item = Parameter(name, section.annotation, section.default, section.doc)
        yield from _some(_to_field(name, node, item))
    elif shape in ("value", "options", "free", "stages"):
        yield from _entries(name, node, (own,))
    elif shape == "specs":
        if node.is_list:
            yield FormField(
                key=name, type="list", node=node, doc=section.doc, kind=section.kind, own=own
            )
    elif has_members(section, node):
        shared = tuple(item for item in own.parameters if item.name in SHARED_KEYS)
        keys = {key: child for key, child in node.mapping.items() if key in SHARED_KEYS}
        yield from _entries(name, node.with_entries(keys), (replace(own, parameters=shared),))
        members = member_signature(section, registry.finder)
        yield from _each(name, section, node.without(*SHARED_KEYS), members, registry)
    elif shape == "splits" or is_mapping_of_specs(node):
        yield from _each(name, section, node, own, registry)
    elif is_spec(node) or (name in _OPTIONAL and node.value is None):
        yield from _component(name, section, node, own, registry)


def _each(
    path: str, section: Section, node: Node, own: Signature, registry: Registry
) -> Iterator[FormField]:
    for name, child in node.mapping.items():
        here = f"{path}.{name}"
        if is_spec(child):
            yield from _component(here, section, child, own, registry)
        elif is_mapping_of_specs(child):
            yield from _each(here, section, child, own, registry)


def _component(
    path: str, section: Section, node: Node, own: Signature, registry: Registry
) -> Iterator[FormField]:
    yield FormField(
        key=path,
        type="component",
        node=node,
        doc=section.doc,
        is_nullable=path in _OPTIONAL,
        kind=section.kind,
        own=own,
    )
    found = find_signature(registry, section.kind, node.get("type").value) or Signature("")
    yield from _entries(path, node.without("type"), (own, found))


def _entries(path: str, node: Node, signatures: Sequence[Signature]) -> Iterator[FormField]:
    for key, child in node.mapping.items():
        items = (signature.get(key) for signature in signatures)
        item = next((one for one in items if one is not None), None)
        field = _to_field(f"{path}.{key}", child, item)
        yield from _some(field)
        if field is None:
            yield from _leaves(f"{path}.{key}", child)


def _leaves(path: str, node: Node) -> Iterator[FormField]:
    """Numbers and switches inside lists and mappings, whose types are those of their values."""
    if node.is_list or node.is_mapping:
        for key, leaf in node.iter_leaves(path):
            if isinstance(leaf.value, bool | int | float) and leaf.layer != "default":
                yield from _some(_to_field(key, leaf, None))


def _some(field: FormField | None) -> Iterator[FormField]:
    if field is not None:
        yield field


def _to_field(key: str, node: Node, item: Parameter | None) -> FormField | None:
    """The field of a single value; None if a form cannot show it."""
    annotation = "" if item is None else item.annotation
    wanted = parse_type(annotation)
    parts = wanted.args if wanted.name == "union" else (wanted,)
    names = {part.name for part in parts if part != ANY}
    is_secret = "${env:" in (node.template or "") or node.is_deferred
    if node.is_list or node.is_mapping or is_secret or names & {"path", "callable"}:
        return None
    value = node.value
    if isinstance(value, float) and not math.isfinite(value):
        return None
    field = FormField(
        key=key,
        type="text",
        node=node,
        doc="" if item is None else item.doc,
        annotation=annotation,
        is_nullable="none" in names or (item is not None and item.default is None),
    )
    return _typed(field, names - {"none"}, _list_choices(parts))


def _typed(field: FormField, names: set[str], choices: tuple[Scalar, ...]) -> FormField | None:
    value = field.node.value
    if not names:  # no annotation, or one that says nothing
        names = {"bool" if isinstance(value, bool) else type(value).__name__}
    if names == {"bool"} and not field.is_nullable:
        return replace(field, type="bool")
    if names <= {"choice", "bool"} and choices:
        offered = choices + ((None,) if field.is_nullable else ())
        return replace(field, type="choice", choices=tuple(dict.fromkeys(offered)))
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if names <= {*_NUMBERS} or (is_number and names & {*_NUMBERS} and not names & {*_TEXTS}):
        return replace(field, type="number", is_integer="float" not in names)
    if names <= {*_NUMBERS, *_TEXTS, "choice"} and (value is None or isinstance(value, str | int)):
        return replace(field, is_free="str" in names, choices=choices)
    return None


def _list_choices(parts: Iterable[Type]) -> tuple[Scalar, ...]:
    found: list[Scalar] = []
    for part in parts:
        found += (True, False) if part.name == "bool" else part.choices
    return tuple(found)
