"""Reads the constructor of a dataclass from its fields and those of its bases."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from epochal.check.signatures.classes import decorators_keep_signature, is_dataclass, is_false
from epochal.check.signatures.docstrings import field_docs
from epochal.check.signatures.literals import MISSING, Plain, read_field_default, read_literal
from epochal.check.signatures.parameters import Parameter, Signature, annotation_of, key_of
from epochal.registry.parsed_module import full_name

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from epochal.registry.module_finder import ModuleFinder
    from epochal.registry.parsed_module import Definition, Module


def fields_signature(order: Sequence[Definition | None], finder: ModuleFinder) -> Signature:
    """The constructor of a dataclass, given its MRO."""
    parameters: dict[str, Parameter] = {}
    is_open = False
    for item in reversed(order):
        if item is None or not decorators_keep_signature(item, item.node, finder):
            is_open = True  # an unknown base may add fields
        elif is_dataclass(item):
            for name, parameter in _fields(item):
                parameters.pop(name, None)
                if parameter is not None:
                    parameters[name] = parameter
    owner = order[0].dotted if order[0] is not None else ""
    return Signature(owner, tuple(parameters.values()), open=is_open)


def _fields(definition: Definition) -> Iterator[tuple[str, Parameter | None]]:
    node = definition.node
    assert isinstance(node, ast.ClassDef)
    docs = field_docs(node)
    for statement in node.body:
        if isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name):
            name = statement.target.id
            yield name, _field(statement, name, definition.module, docs.get(name, ""))


def _field(statement: ast.AnnAssign, name: str, module: Module, doc: str) -> Parameter | None:
    annotation = annotation_of(statement.annotation, module)
    kind = annotation.strip("'\"").split("[")[0].rpartition(".")[2]
    if kind in ("ClassVar", "KW_ONLY"):
        return None
    default: Plain = MISSING
    value = statement.value
    if isinstance(value, ast.Call) and full_name(module, value.func).endswith("field"):
        if any(word.arg == "init" and is_false(word.value) for word in value.keywords):
            return None
        default = read_field_default(value, module)
    elif value is not None:
        default = read_literal(value, module)
    return Parameter(key_of(name), annotation, default, doc, argument=name, home=module.name)
