"""Finds methods of tasks and hooks whose misspelt names the engine would never call."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from epochal.check.sections.sections import read_table
from epochal.check.signatures.classes import binds_name, class_definitions
from epochal.errors import Problem, misspelling_of
from epochal.registry.module_finder import ModuleFinder, cached_by_finder

if TYPE_CHECKING:
    from epochal.registry.parsed_module import Definition, Module

_REQUIRED = "epochal.engine.interfaces.task:REQUIRED_METHODS"
_OPTIONAL = "epochal.engine.interfaces.task:OPTIONAL_METHODS"
_EVENTS = "epochal.engine.interfaces.hook:EVENTS"
_ALIASES = "epochal.engine.interfaces.hook:ALIASES"


def known_methods(kind: str, finder: ModuleFinder) -> set[str]:
    """The names of the methods that the engine calls on a task or a hook."""
    tables = [_EVENTS, _ALIASES] + ([_REQUIRED, _OPTIONAL] if kind == "task" else [])
    return {name for table in tables for name in read_table(table, finder)}


@cached_by_finder
def find_misspelt_methods(
    path: str, kind: str, definition: Definition, finder: ModuleFinder
) -> list[Problem]:
    """A problem for each public method whose name misspells a known one."""
    problems = []
    known = known_methods(kind, finder)
    chain, _ = class_definitions(definition, finder)
    own = [item for item in chain if item.module.name.split(".")[0] not in ("epochal", "torch")]
    used = {name for item in own for name in find_attribute_names(item.module, finder)}
    for item in own:
        for statement in item.node.body:
            if not isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef):
                continue
            name = statement.name
            if name.startswith("_") or name in known or name in used or statement.decorator_list:
                continue  # a name that its module uses is no typo
            close = misspelling_of(name, known)
            if close is not None:
                what = f"{item.dotted} has a method {name!r}, which nothing calls"
                hint = f"did you mean {close!r}? add a leading underscore if it is your own"
                place = item.module.place(statement, word=name)
                problems.append(Problem(path, what, place, hint))
    return problems


def has_method(definition: Definition, name: str, finder: ModuleFinder) -> bool | None:
    """Whether a class has a method; None if its source does not show that."""
    chain, complete = class_definitions(definition, finder)
    if any(binds_name(item.node, name) for item in chain):
        return True
    return False if complete and not is_set_on_self(chain, name) else None


def is_set_on_self(chain: list[Definition], name: str) -> bool:
    """Whether a method sets an attribute ``name``, which the class body does not show."""
    return any(
        isinstance(node, ast.Attribute) and node.attr == name and isinstance(node.ctx, ast.Store)
        for item in chain
        for node in ast.walk(item.node)
    )


@cached_by_finder
def find_attribute_names(module: Module, finder: ModuleFinder) -> frozenset[str]:
    """The names of all attributes in the source of a module."""
    return frozenset(node.attr for node in ast.walk(module.tree) if isinstance(node, ast.Attribute))
