"""JSON Schema (draft-07) of configs, for editors."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from epochal.check.sections.section_shapes import SHARED_KEYS
from epochal.check.sections.sections import SECTIONS, Section, section_signature, split_names
from epochal.check.signatures.literals import Opaque, Plain
from epochal.check.signatures.parameters import Parameter, Signature
from epochal.check.signatures.signature import read_signature
from epochal.check.values.types import Type, parse_type
from epochal.errors import ConfigError
from epochal.registry.factories import KINDS
from epochal.registry.project import Project, registering_modules
from epochal.registry.registry import Registry

if TYPE_CHECKING:
    from collections.abc import Iterable

Schema = dict[str, Plain]

_DURATION = r"^\s*\d[\d_]*(\.\d+)?([eE][-+]?\d+)?\s*(ep|st|sa|s|min|h|d)\s*$"
_CONDITION = r"^\s*[-+]?\s*[^\s<>=+-][^\s<>=]*\s*(>=|<=)\s*\S+\s*$"
_REFERENCE: Schema = {"$ref": "#/definitions/reference"}
_SPEC: Schema = {"$ref": "#/definitions/spec"}
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
    "reference": {
        "description": "A ${...} reference, or one of the spelled-out values.",
        "type": "string",
        "pattern": r"\$\{|^-?\$(null|inf|nan|delete)$",
    },
    "dotted": {
        "description": "A class or function of this project: package.module.Class.",
        "type": "string",
        "pattern": r"^[A-Za-z_]\w*(\.[A-Za-z_]\w*)+$|\$\{",
    },
    "spec": {
        "description": "A component: its type and its arguments.",
        "type": "object",
        "required": ["type"],
    },
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
    kinds = {section.kind: section for section in SECTIONS.values() if section.kind}
    definitions = dict(_DEFINITIONS)
    for kind, section in kinds.items():
        definitions[kind] = _spec_schema(section, registry)
    head: Schema = {"$schema": "http://json-schema.org/draft-07/schema#"}
    if name:
        head |= {"title": name} | _named_schema(name, registry)
    else:
        head |= {"title": "Epochal config", "type": "object"}
        head["properties"] = _sections(registry)
        head["additionalProperties"] = False
    return head | {"definitions": definitions}


def find_component(name: str, registry: Registry) -> Signature:
    """The signature of a component of any kind.

    Raises:
        UnknownComponentError: There is no component of this name.
    """
    for kind in _likely_kinds(name):
        try:
            return read_signature(registry.find(kind, name), registry.finder)
        except ConfigError:
            continue
    return read_signature(registry.find("component", name), registry.finder)


def _likely_kinds(name: str) -> tuple[str, ...]:
    if name.startswith("torch.optim."):
        return ("schedule" if ".lr_scheduler." in name else "optimizer",)
    return KINDS


def registry_with_project(source: Registry | Project | None) -> Registry:
    """A registry that includes the names which the project's modules register."""
    from pathlib import Path

    if isinstance(source, Registry) and source.imports:
        return source
    project = source.project if isinstance(source, Registry) else source
    project = project if project is not None else Project(Path.cwd())
    return Registry(project, registering_modules(project))


def _named_schema(name: str, registry: Registry) -> Schema:
    if name in SECTIONS:
        found: Schema = _section_schema(SECTIONS[name], registry)
        return found
    signature = find_component(name, registry)
    return {
        "description": signature.summary,
        "type": "object",
        "properties": {"type": {"const": name}}
        | _properties(signature.parameters, signature.owner),
        "required": [item.name for item in signature.parameters if item.is_required],
        "additionalProperties": signature.open,
    }


def _sections(registry: Registry) -> Schema:
    properties = {name: _section_schema(section, registry) for name, section in SECTIONS.items()}
    variant = {"type": "object", "description": "Changes: dotted keys or nested mappings."}
    properties["$BASE"] = {"$ref": "#/definitions/base"}
    properties["variants"] = {
        "description": "Several experiments in one file, by name.",
        "type": "object",
        "additionalProperties": variant,
    }
    properties["sweep"] = {"description": "A search over this config.", "type": "object"}
    return properties


def _section_schema(section: Section, registry: Registry) -> Schema:
    spec: Schema = {"$ref": f"#/definitions/{section.kind}"}
    if section.shape == "free":
        return {"description": section.doc, "type": "object"}
    if section.shape == "options":
        own = section_signature(section, registry.finder)
        return {
            "description": section.doc,
            "type": "object",
            "properties": _properties(own.parameters, own.owner),
            "additionalProperties": own.open,
        }
    if section.shape == "spec":
        several = [_several(section, registry)] if section.members else []
        return {"description": section.doc, "anyOf": [spec, *several, {"type": "null"}]}
    if section.shape in ("specs", "terms"):
        entries: Schema = {"type": "array", "items": spec}
        named: Schema = {"type": "object", "additionalProperties": spec, "not": _SPEC}
        others = [spec, named] if section.shape == "terms" else []
        kinds = [entries, *others, {"type": "null"}, _REFERENCE]
        return {"description": section.doc, "anyOf": kinds}
    make = {"splits": _splits, "stages": _stages}.get(section.shape)
    return _value(section) if make is None else make(section, spec, registry)


def _splits(section: Section, spec: Schema, registry: Registry) -> Schema:
    several: Schema = {"type": "object", "additionalProperties": spec, "not": _SPEC}
    return {
        "description": section.doc,
        "type": "object",
        "propertyNames": {"enum": [*sorted(split_names(registry.finder)), "$BASE"]},
        "additionalProperties": {"anyOf": [spec, several]},
    }


def _stages(section: Section, spec: Schema, registry: Registry) -> Schema:
    stage: Schema = {
        "type": "object",
        "properties": _properties(section.keys, "a stage"),
        "additionalProperties": False,
    }
    kinds = [{"type": "array", "items": stage}, {"type": "null"}, _REFERENCE]
    return {"description": section.doc, "anyOf": kinds}


def _several(section: Section, registry: Registry) -> Schema:
    """Several specs by name, and the keys that apply to all of them."""
    own = section_signature(section, registry.finder)
    shared = [item for item in own.parameters if item.name in SHARED_KEYS]
    members = _spec_schema(replace(section, options=section.members, keys=()), registry)
    return {
        "type": "object",
        "properties": _properties(shared, own.owner),
        "additionalProperties": members,
        "not": _SPEC,
    }


def _value(section: Section) -> Schema:
    parameter = Parameter(section.name, section.annotation, section.default, section.doc)
    schema = _property(parameter, f"section {section.name!r}")
    if section.keys:
        mapping: Schema = {
            "type": "object",
            "properties": _properties(section.keys, section.name),
            "additionalProperties": False,
        }
        schema["anyOf"] = [{"type": ["string", "null"]}, mapping]
    return schema


def _spec_schema(section: Section, registry: Registry) -> Schema:
    own = section_signature(section, registry.finder)
    names = registry.names(section.kind, entry_points=True)
    cases = [_case(name, own, section.kind, registry) for name in names]
    dotted: Schema = {"$ref": "#/definitions/dotted"}
    chosen: Schema = {
        "description": f"Which {section.kind}: a known name, or package.module.Class.",
        "anyOf": [*([{"enum": _spellings(names, section.kind)}] if names else []), dotted],
    }
    mapping: Schema = {
        "type": "object",
        "properties": {"type": chosen} | _properties(own.parameters, own.owner),
    }
    if cases:
        mapping["allOf"] = cases
    return {"description": section.doc, "anyOf": [mapping, chosen]}


def _case(name: str, own: Signature, kind: str, registry: Registry) -> Schema:
    """The schema of the arguments if the type is ``name``."""
    signature = read_signature(registry.find(kind, name), registry.finder)
    properties: Schema = {"type": {"description": signature.summary}}
    properties |= _properties(signature.parameters, signature.owner)
    properties |= _properties(own.parameters, own.owner)
    then: Schema = {"properties": properties}
    if not signature.open:
        then["additionalProperties"] = False
    wanted: Schema = {"type": {"enum": _spellings([name], kind)}}
    return {"if": {"properties": wanted, "required": ["type"]}, "then": then}


def _spellings(names: Iterable[str], kind: str) -> list[str]:
    found = set(names)
    if kind in ("optimizer", "schedule", "loss"):  # their names are not case-sensitive
        found |= {name.lower() for name in found}
    return sorted(found)


def _properties(parameters: Iterable[Parameter], owner: str) -> Schema:
    found: Schema = {item.name: _property(item, owner) for item in parameters}
    return found | {"$BASE": {"$ref": "#/definitions/base"}}


def _property(item: Parameter, owner: str) -> Schema:
    schema: Schema = {"description": item.doc or f"An argument of {owner}."}
    if not item.is_required and not isinstance(item.default, Opaque):
        schema["default"] = item.default
    wanted = type_schema(parse_type(item.annotation))
    if wanted:
        options = [*wanted["anyOf"]] if set(wanted) == {"anyOf"} else [wanted]
        if item.default is None and {"type": "null"} not in options:
            options.append({"type": "null"})
        schema["anyOf"] = [*options, _REFERENCE, _SPEC]
    return schema


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
    inner = [_element(part) for part in wanted.args]
    if wanted.name == "dict":
        return {"type": "object", "additionalProperties": inner[0]}
    if wanted.name == "tuple":
        return {"type": "array", "items": inner, "minItems": len(inner), "maxItems": len(inner)}
    return {"type": "array", "items": inner[0]}


def _element(wanted: Type) -> Schema:
    schema = type_schema(wanted)
    return {"anyOf": [schema, _REFERENCE, _SPEC]} if schema else {}
