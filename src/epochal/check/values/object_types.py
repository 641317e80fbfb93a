"""Finds plain values where the annotation requires an object, so that a spec is needed."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from epochal.check.signatures.classes import find_mro
from epochal.check.values.types import ANY, LISTS, is_spec, last_name, parse_type
from epochal.registry.module_finder import ModuleFinder, cached_by_finder, is_standard
from epochal.registry.parsed_module import full_name

if TYPE_CHECKING:
    from collections.abc import Iterator

    from epochal.check.signatures.parameters import Parameter
    from epochal.config.node import Node
    from epochal.registry.parsed_module import Module

_DTYPE = "torch.dtype"


def find_misfits(
    node: Node, parameter: Parameter, finder: ModuleFinder
) -> Iterator[tuple[str, Node, str]]:
    """Each plain value whose annotation names only classes that no plain value belongs to.

    Mappings without ``type`` are plain values too, unless they contain specs. Yields the path
    below the parameter, the value, and the class. Unclear cases are accepted.
    """
    if not parameter.annotation or not parameter.home or _is_lax(parameter.default):
        return
    module = finder.find_module(parameter.home)
    written = _parsed(parameter.annotation)
    if module is not None and written is not None:
        yield from _misfits("", node, written, module, finder)


def spec_hint(node: Node, wanted: str, finder: ModuleFinder) -> str:
    """A hint with the spec to write instead of a plain value, with its class if found."""
    if node.is_mapping:
        return "add type: package.module.Class"
    value = node.value
    if wanted == _DTYPE:
        return "annotate it as str and use getattr(torch, dtype): configs have plain values only"
    package = wanted.rpartition(".")[0]
    for dotted in (str(value), f"{package}.{value}") if isinstance(value, str) else ():
        parts = dotted.split(".")
        if all(part.isidentifier() for part in parts) and finder.find_definition(dotted):
            return f"write {{type: {dotted}}}"
    return "write {type: package.module.Class}"


def _is_lax(default: object) -> bool:
    """Whether the default is a plain value, so that the annotation is not strict."""
    return isinstance(default, bool | int | float | str)


def _parsed(annotation: str) -> ast.expr | None:
    try:
        return ast.parse(annotation.strip(), mode="eval").body
    except (SyntaxError, ValueError):
        return None


def _misfits(
    path: str, node: Node, written: ast.expr, module: Module, finder: ModuleFinder
) -> Iterator[tuple[str, Node, str]]:
    if node.is_list:
        members = [member for member in _members(written) if isinstance(member, ast.Subscript)]
        if len(members) == 1 and last_name(members[0].value) in LISTS:
            for index, child in enumerate(node.elements):
                yield from _misfits(f"{path}.{index}", child, members[0].slice, module, finder)
        return
    if isinstance(node.value, bool | int | float | str) or _is_plain_mapping(node):
        names = [_object_class(member, module, finder) for member in _members(written)]
        found = [name for name in names if name]
        if found and len(found) == len(names):
            yield path, node, found[0]


def _is_plain_mapping(node: Node) -> bool:
    return node.is_mapping and not any(map(is_spec, (node, *node.mapping.values())))


def _members(written: ast.expr) -> Iterator[ast.expr]:
    """The members of a union without ``None``."""
    if isinstance(written, ast.Constant) and isinstance(written.value, str):
        inner = _parsed(written.value)
        yield from _members(inner) if inner is not None else [written]
    elif isinstance(written, ast.BinOp) and isinstance(written.op, ast.BitOr):
        yield from _members(written.left)
        yield from _members(written.right)
    elif isinstance(written, ast.Subscript) and last_name(written.value) in ("Optional", "Union"):
        parts = written.slice.elts if isinstance(written.slice, ast.Tuple) else [written.slice]
        for part in parts:
            yield from _members(part)
    elif not (isinstance(written, ast.Constant) and written.value is None):
        yield written


def _object_class(written: ast.expr, module: Module, finder: ModuleFinder) -> str:
    """The name of a class that has no plain values as instances; empty if that is unclear."""
    if not isinstance(written, ast.Name | ast.Attribute) or parse_type(ast.unparse(written)) != ANY:
        return ""  # a type that configs can express, such as Duration or Path
    name = full_name(module, written)
    if name == _DTYPE:
        return name
    return name if _is_class(name, finder) else ""


@cached_by_finder
def _is_class(name: str, finder: ModuleFinder) -> bool:
    """Whether a name is a class that no base or metaclass opens to texts and numbers."""
    definition = finder.find_definition(name)
    for item in find_mro(definition, finder) if definition is not None else (None,):
        if item is None or is_standard(item.module.name.split(".")[0]):
            return False  # such as str, Enum or Path
        node = item.node
        if not isinstance(node, ast.ClassDef) or node.keywords:
            return False
        if any(last_name(base) in ("Protocol", "ABC") for base in map(_bare, node.bases)):
            return False
    return True


def _bare(base: ast.expr) -> ast.expr:
    return base.value if isinstance(base, ast.Subscript) else base
