"""JSON Schema (draft-07) of configs, for editors.

Conditions (``if``) choose between the forms of a section, not ``anyOf``: editors then explain a
mistake of the chosen form. ``pattern`` compares texts, not ``enum``, which editors also match by
prefix while one types: ``cosine`` would offer the options of ``CosineAnnealingLR`` too.
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING

from epochal.check.export.own_classes import own_classes
from epochal.check.sections.section_shapes import SHARED_KEYS
from epochal.check.sections.sections import (
    LOADER_SECTIONS,
    SECTIONS,
    Section,
    section_signature,
    split_names,
)
from epochal.check.signatures.parameters import Opaque, Parameter, Plain, Signature
from epochal.check.signatures.signature import read_signature
from epochal.check.values.types import Type, parse_type
from epochal.errors import ConfigError
from epochal.registry.component_names import ANY_KIND, KINDS
from epochal.registry.project import Project, project_modules
from epochal.registry.registry import Registry

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from epochal.check.export.own_classes import OwnClass

Schema = dict[str, Plain]

_DURATION = r"^\s*\d[\d_]*(\.\d+)?([eE][-+]?\d+)?\s*(ep|st|sa|s|min|h|d)\s*$"
_CONDITION = r"^\s*[-+]?\s*[^\s<>=+-][^\s<>=]*\s*(>=|<=)\s*\S+\s*$"
_REFERENCE = r"\$\{|^-?\$(null|inf|nan|delete)$"
_IS_SPEC: Schema = {"type": "object", "required": ["type"]}
_IS_SPECS_BY_NAME: Schema = {
    "type": "object",
    "minProperties": 1,
    "not": {"required": ["type"]},
    "additionalProperties": {"type": "object"},
}
_HAS_SPEC_BY_NAME: Schema = {
    "type": "object",
    "not": {"anyOf": [{"required": ["type"]}, {"additionalProperties": {"not": _IS_SPEC}}]},
}
# Any value: editors write a colon after a key only if its schema has a type.
_ANY_VALUE: Schema = {"type": ["string", "number", "boolean", "array", "object", "null"]}
_NOT_DELETED: Schema = {"not": {"type": "string", "pattern": r"^\$delete$"}}
_SCALARS: dict[str, Schema] = {
    "int": {"type": "integer"},
    "float": {"type": "number"},
    "bool": {"type": "boolean"},
    "str": {"type": "string"},
    "path": {"type": "string"},
    "callable": {"type": "string"},
    "none": {"type": "null"},
    "duration": {"type": "string", "pattern": _DURATION},
    "condition": {"type": "string", "pattern": _CONDITION},
    "every": {"anyOf": [{"type": "string", "pattern": _DURATION}, {"enum": [0, "0"]}]},
}
_DEFINITIONS: Schema = {
    "special": {"anyOf": [{"type": "string", "pattern": _REFERENCE}, _IS_SPEC]},
    "base": {
        "description": "Files to inherit from: a path, a list, or a mapping of section to path.",
        "type": ["string", "array", "object"],
    },
}


def json_schema(source: Registry | Project | None = None, name: str | None = None) -> Schema:
    """The schema of whole config files, or of the section or component called ``name``.

    Args:
        source: The project, or its registry; its registered components are included.
        name: A section such as ``train``, or a component such as ``AdamW``.

    Raises:
        UnknownComponentError: ``name`` is neither.
    """
    registry = registry_with_project(source)
    own = own_classes(registry)
    definitions = _DEFINITIONS | {"spec": _nested_spec(own, registry)}
    is_component = name is not None and name not in SECTIONS  # its arguments refer to no section
    for section in () if is_component else (*SECTIONS.values(), *LOADER_SECTIONS):
        if section.kind:
            definitions[section.kind] = _spec_schema(section, own, registry)
    head: Schema = {"$schema": "http://json-schema.org/draft-07/schema#"}
    if name is not None:
        head |= _named_schema(name, own, registry)
    else:
        head |= {"type": "object", "properties": _sections(own, registry)}
        head["additionalProperties"] = False
    return head | {"definitions": definitions}


def find_component(name: str, registry: Registry) -> Signature:
    """The signature of a component of any kind; UnknownComponentError if there is none."""
    is_optim = name.startswith("torch.optim.")
    optim = "schedule" if ".lr_scheduler." in name else "optimizer"
    for kind in (optim,) if is_optim else KINDS:
        try:
            return read_signature(registry.find(kind, name), registry.finder)
        except ConfigError:
            continue
    return read_signature(registry.find("component", name), registry.finder)


def registry_with_project(source: Registry | Project | None) -> Registry:
    """A registry that includes the names which the project's modules register."""
    from pathlib import Path

    if isinstance(source, Registry) and source.imports:
        return source
    project = source.project if isinstance(source, Registry) else source
    project = project if project is not None else Project(Path.cwd())
    files = project_modules(project).items()
    return Registry(project, [name for name, file in files if b"register" in file.read_bytes()])


def _named_schema(name: str, own: tuple[OwnClass, ...], registry: Registry) -> Schema:
    if name in SECTIONS:
        return _section_schema(SECTIONS[name], own, registry)
    signature = find_component(name, registry)
    return {
        "description": signature.summary,
        "type": "object",
        "properties": {"type": {"const": name}}
        | _properties(signature.parameters, signature.owner),
        "required": [item.name for item in signature.parameters if item.is_required],
        "additionalProperties": signature.open,
    }


def _sections(own: tuple[OwnClass, ...], registry: Registry) -> Schema:
    properties = {
        name: _section_schema(section, own, registry) for name, section in SECTIONS.items()
    }
    variant: Schema = {
        "type": "object",
        "description": "Changes: dotted keys or nested mappings.",
        "properties": {name: {"$ref": f"#/properties/{name}"} for name in properties},
    }
    properties["$BASE"] = {"$ref": "#/definitions/base"}
    properties["variants"] = {
        "description": "Several experiments in one file, by name.",
        "type": "object",
        "additionalProperties": variant,
    }
    properties["sweep"] = {"description": "A search over this config.", "type": "object"}
    return properties


def _section_schema(section: Section, own: tuple[OwnClass, ...], registry: Registry) -> Schema:
    about: Schema = {"description": section.doc}
    spec: Schema = {"$ref": f"#/definitions/{section.kind}"}
    if section.shape == "value":
        return _value(section)
    if section.shape == "free":
        return about | {"type": "object"}
    if section.shape == "options":
        keys = section_signature(section, registry.finder)
        return about | _closed(_properties(keys.parameters, keys.owner), is_open=keys.open)
    if section.shape == "splits":
        return about | _splits(section, spec, registry)
    if section.shape == "stages":
        return about | _list(_closed(_properties(section.keys, "a stage")))
    if section.shape == "specs":
        return about | _list(spec)
    about["type"] = ["object", "string", "array", "null"]
    if section.shape == "terms":
        several = _choice(_IS_SPECS_BY_NAME, {"additionalProperties": spec}, spec)
        return about | _choice({"type": "array"}, _list(spec), several)
    if section.members:
        return about | _choice(_HAS_SPEC_BY_NAME, _several(section, own, registry), spec)
    return spec


def _choice(condition: Schema, then: Schema, otherwise: Schema) -> Schema:
    return {"if": condition, "then": then, "else": otherwise}


def _list(items: Schema) -> Schema:
    return {"type": ["array", "string", "null"], "pattern": _REFERENCE, "items": items}


def _closed(properties: Schema, *, is_open: bool = False) -> Schema:
    return {"type": "object", "properties": properties, "additionalProperties": is_open}


def _splits(section: Section, spec: Schema, registry: Registry) -> Schema:
    about = "The dataset of this split, or its pipes, or several of them by name."
    split: Schema = {"description": about, "type": ["object", "string"]}
    keys = section_signature(section, registry.finder)
    pipes: Schema = {
        "description": "A source of samples, and what happens to them, in order.",
        "type": "array",
        "minItems": 1,
        "items": [{"$ref": "#/definitions/source"}],
        "additionalItems": {"$ref": "#/definitions/pipe"},
    }
    chain = _closed({"pipes": pipes} | _properties(keys.parameters, keys.owner))
    one = _choice({"required": ["pipes"]}, chain, spec)
    split |= _choice(_IS_SPECS_BY_NAME, {"additionalProperties": one}, one)
    names = split_names(registry.finder)
    offered = [name for name, split_name in names.items() if name == split_name]
    others = "|".join(name for name in names if name not in offered)
    return {
        "type": "object",
        "properties": dict.fromkeys(offered, split) | {"$BASE": {"$ref": "#/definitions/base"}},
        "patternProperties": {f"^({others})$": split},
        "additionalProperties": False,
    }


def _several(section: Section, own: tuple[OwnClass, ...], registry: Registry) -> Schema:
    """Several specs by name, and the keys that apply to all of them."""
    keys = section_signature(section, registry.finder)
    shared = [item for item in keys.parameters if item.name in SHARED_KEYS]
    member = replace(section, options=section.members, keys=())
    return {
        "properties": _properties(shared, keys.owner),
        "additionalProperties": _spec_schema(member, own, registry),
    }


def _value(section: Section) -> Schema:
    parameter = Parameter(section.name, section.annotation, section.default, section.doc)
    schema = _property(parameter, f"section {section.name!r}")
    if section.keys:
        mapping = _closed(_properties(section.keys, section.name))
        schema |= _choice({"type": "object"}, mapping, {"type": ["string", "null"]})
    return schema


def _spec_schema(section: Section, own: tuple[OwnClass, ...], registry: Registry) -> Schema:
    """A component of one kind: its name, or a mapping with its type and arguments."""
    kind = section.kind
    keys = section_signature(section, registry.finder)
    cases = dict(_known_cases(kind, registry))
    cases |= dict(_own_cases([one for one in own if kind in one.kinds], kind, registry))
    # Names only: reading the signatures of all metrics of torchmetrics would take seconds.
    more = sorted(registry.torchmetrics) if kind == "metric" else []
    offered: list[Schema] = [{"enum": more}] if more else []
    pattern = _type_pattern(cases)
    chosen: Schema = {
        "description": f"Which {kind}: a known name, or package.module.Class.",
        "anyOf": [*_offered(cases), *offered, {"type": "string", "pattern": pattern}],
    }
    mapping: Schema = {
        "properties": {"type": chosen} | _properties(keys.parameters, keys.owner),
        "allOf": _conditions(cases, keys),
    }
    about: Schema = {"description": section.doc, "type": ["object", "string", "null"]}
    return about | _choice({"type": "string"}, chosen, mapping)


def _nested_spec(own: tuple[OwnClass, ...], registry: Registry) -> Schema:
    """A component inside another one: it may be of any kind."""
    cases = dict(_own_cases(own, ANY_KIND, registry))
    return {
        "properties": {
            "type": {
                "description": "Which component: a known name, or package.module.Class.",
                "anyOf": [*_offered(cases), {"type": "string"}],
            }
        },
        "allOf": _conditions(cases, Signature("")),
    }


_Case = tuple[tuple[str, ...], Signature]


def _known_cases(kind: str, registry: Registry) -> Iterator[tuple[str, _Case]]:
    any_case = kind in ("optimizer", "schedule", "loss")  # their names are not case-sensitive
    for name in registry.names(kind, entry_points=True):
        signature = read_signature(registry.find(kind, name), registry.finder)
        yield name, ((name, name.lower()) if any_case else (name,), signature)


def _own_cases(
    own: Iterable[OwnClass], kind: str, registry: Registry
) -> Iterator[tuple[str, _Case]]:
    for one in own:
        try:
            factory = registry.find(kind, one.dotted)
        except ConfigError:  # such as a module that another one hides
            continue
        yield one.dotted, (one.spellings, read_signature(factory, registry.finder))


def _offered(cases: dict[str, _Case]) -> list[Schema]:
    """The names that an editor offers, each with its documentation."""
    summaries = [signature.summary for _, signature in cases.values()]
    return [{"enum": [*cases], "enumDescriptions": summaries}] if cases else []


def _type_pattern(cases: dict[str, _Case]) -> str:
    names = {name for spellings, _ in cases.values() for name in spellings if "." not in name}
    dotted = r"^[A-Za-z_]\w*(\.[A-Za-z_]\w*)+$"
    return "|".join([dotted, _REFERENCE, *(f"^{re.escape(name)}$" for name in sorted(names))])


def _conditions(cases: dict[str, _Case], keys: Signature) -> list[Schema]:
    found = [_case(names, signature, keys) for names, signature in cases.values()]
    return found or [{}]  # an empty list would not be valid


def _case(names: Iterable[str], signature: Signature, keys: Signature) -> Schema:
    """The schema of the arguments if the type is one of ``names``."""
    pattern = "|".join(re.escape(name) for name in sorted(set(names)))
    wanted: Schema = {
        "type": "object",
        "required": ["type"],
        "properties": {"type": {"type": "string", "pattern": f"^({pattern})$"}},
        "additionalProperties": _NOT_DELETED,  # other types may have the deleted argument
    }
    properties: Schema = {"type": {"description": signature.summary}}
    properties |= _properties(signature.parameters, signature.owner)
    properties |= _properties(keys.parameters, keys.owner)
    then: Schema = {"properties": properties}
    if not signature.open:
        then["additionalProperties"] = False
    return {"if": wanted, "then": then}


def _properties(parameters: Iterable[Parameter], owner: str) -> Schema:
    found: Schema = {item.name: _property(item, owner) for item in parameters}
    return found | {"$BASE": {"$ref": "#/definitions/base"}}


def _property(item: Parameter, owner: str) -> Schema:
    schema: Schema = _ANY_VALUE | {"description": item.doc or f"An argument of {owner}."}
    if not item.is_required and not isinstance(item.default, Opaque):
        schema["default"] = item.default
    wanted = type_schema(parse_type(item.annotation))
    if wanted and item.default is None:
        options = [*wanted["anyOf"]] if set(wanted) == {"anyOf"} else [wanted]
        null: Schema = {"type": "null"}
        wanted = {"anyOf": options if null in options else [*options, null]}
    choices = [*_choices(parse_type(item.annotation))]
    return schema | ({"examples": choices} if choices else {}) | _or_spec(wanted)


def _choices(wanted: Type) -> Iterator[Plain]:
    """The values that an editor offers."""
    yield from (True, False) if wanted.name == "bool" else wanted.choices
    for part in wanted.args if wanted.name == "union" else ():
        yield from _choices(part)


def _or_spec(wanted: Schema) -> Schema:
    """A value of a type, a reference, or the component that is to be built in its place."""
    special: Schema = {"$ref": "#/definitions/special"}
    return _choice(special, {"$ref": "#/definitions/spec"}, wanted)


def type_schema(wanted: Type) -> Schema:
    """The schema of a type; empty if any value fits."""
    if wanted.name in _SCALARS:
        bounds: Schema = {bound.keyword: bound.limit for bound in wanted.bounds}
        return _SCALARS[wanted.name] | bounds
    if wanted.name == "choice":
        return {"enum": list(wanted.choices)}
    if wanted.name == "union":
        parts = [type_schema(part) for part in wanted.args if part.name != "any"]
        only_null = all(part == {"type": "null"} for part in parts)
        return {} if only_null else {"anyOf": parts}
    if wanted.name == "any":
        return {}
    return _collection_schema(wanted)


def _collection_schema(wanted: Type) -> Schema:
    inner = [_or_spec(type_schema(part)) for part in wanted.args]
    if wanted.name == "dict":
        return {"type": "object", "additionalProperties": inner[0]}
    if wanted.name == "tuple":
        return {"type": "array", "items": inner, "minItems": len(inner), "maxItems": len(inner)}
    return {"type": "array", "items": inner[0]}
