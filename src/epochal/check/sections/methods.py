"""Finds methods of tasks and hooks that the engine would never call."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from epochal.check.sections.sections import read_table
from epochal.check.signatures.classes import (
    binds_name,
    class_definitions,
    find_method_node,
    returned_values,
)
from epochal.errors import Problem, misspelling_of, nearest
from epochal.registry.module_finder import ModuleFinder, cached_by_finder

if TYPE_CHECKING:
    from epochal.registry.parsed_module import Definition, Module

_REQUIRED = "epochal.engine.interfaces.task:REQUIRED_METHODS"
_OPTIONAL = "epochal.engine.interfaces.task:OPTIONAL_METHODS"
_CALLED_WITH = "epochal.engine.interfaces.task:CALLED_WITH"
_EVENTS = "epochal.engine.interfaces.hook:EVENTS"
_ALIASES = "epochal.engine.interfaces.hook:ALIASES"
_RETURNS = {
    "batch_forward": 'end it with return {"logits": ...}',
    "batch_loss": 'end it with return {"loss": (tensor, count)}',
}
"""What a task's method must return, for messages."""

_LOSS_FN = "loss_fn"
"""The third argument of a ``batch_loss`` that takes it."""

_NO_METHODS = ("staticmethod", "classmethod", "setter", "getter", "deleter", "overload")
"""Decorators of what no event would call; so are those named like ``cached_property``."""

_HOOK = "epochal.engine.interfaces.hook.Hook"
_TASK = "epochal.engine.interfaces.task.Task"
_STATE = "epochal.engine.interfaces.hook:STATE_METHODS"


def known_methods(kind: str, finder: ModuleFinder) -> set[str]:
    """The names of the methods that the engine calls on a task or a hook."""
    tables = [_EVENTS, _ALIASES, *([_REQUIRED, _OPTIONAL] if kind == "task" else [_STATE])]
    return {name for table in tables for name in read_table(table, finder)}


@cached_by_finder
def find_uncalled_methods(
    path: str, kind: str, definition: Definition, finder: ModuleFinder
) -> list[Problem]:
    """A problem for each public method that nothing calls, and for a hook without events.

    A task may have methods for other code, so only misspelt names are problems there.
    """
    problems = []
    known = known_methods(kind, finder)
    chain, is_complete = class_definitions(definition, finder)
    own = [item for item in chain if not _is_library(item)]
    used = {name for item in own for name in find_attribute_names(item.module, finder)}
    for item in own:
        for statement in item.node.body if isinstance(item.node, ast.ClassDef) else ():
            if not isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef):
                continue
            name = statement.name
            if name.startswith("_") or name in known or name in used or _is_no_method(statement):
                continue  # a name that its module uses is not a typo
            close = misspelling_of(name, known)
            if close is None and (kind == "task" or not is_complete or _inherits(chain, name)):
                continue
            close = close or nearest(name, known)
            what = f"{item.dotted} has a method {name!r}, which nothing calls"
            hint = f"did you mean {close!r}? " if close else "no event has this name; "
            hint += "add a leading underscore if it is your own"
            place = item.module.place(statement, word=name)
            problems.append(Problem(path, what, place, hint))
    if problems and kind == "hook" and any(item.dotted == _TASK for item in chain):
        hint = "name it in the section task, or write a subclass of ep.Hook"
        place = definition.module.place(definition.node, word=definition.node.name)
        return [Problem(path, f"{definition.dotted} is a task, not a hook", place, hint)]
    is_hook = kind == "hook" and isinstance(definition.node, ast.ClassDef)
    if is_hook and is_complete and own and not problems:
        problems += _find_missing_events(path, definition, chain, finder)
    return problems


def _find_missing_events(
    path: str, definition: Definition, chain: list[Definition], finder: ModuleFinder
) -> list[Problem]:
    """A problem if no class of a hook has the method of an event."""
    events = {name for table in (_EVENTS, _ALIASES) for name in read_table(table, finder)}
    nodes = [item.node for item in chain if item.dotted != _HOOK]
    functions = ast.FunctionDef | ast.AsyncFunctionDef
    if events & {one.name for node in nodes for one in node.body if isinstance(one, functions)}:
        return []
    if any(binds_name(node, name) for node in nodes for name in events) or any(
        is_set_on_self(chain, name) for name in events
    ):
        return []
    what = f"{definition.dotted} has no method that an event calls"
    place = definition.module.place(definition.node, word=definition.node.name)
    hint = f"write one of them: {', '.join(read_table(_EVENTS, finder))}"
    return [Problem(path, what, place, hint)]


def _is_no_method(node: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    """Whether a decorator makes a property, or a function that needs no instance."""
    names = [ast.unparse(one).partition("(")[0].split(".")[-1] for one in node.decorator_list]
    return any(name in _NO_METHODS or "property" in name for name in names)


def _is_library(item: Definition) -> bool:
    return item.module.name.split(".")[0] in ("epochal", "torch")


def _inherits(chain: list[Definition], name: str) -> bool:
    """Whether a class of a library has the method too, and so may call it."""
    return any(binds_name(item.node, name) for item in chain if _is_library(item))


def find_missing_return(
    path: str, name: str, definition: Definition, finder: ModuleFinder
) -> list[Problem]:
    """A problem if a method of the user's class ends without a value in every case."""
    chain, _ = class_definitions(definition, finder)
    for item in chain:
        node = find_method_node(item.node, name)
        if node is None:
            if binds_name(item.node, name):
                break
            continue
        is_stub = all(isinstance(getattr(one, "value", None), ast.Constant) for one in node.body)
        is_open = node.decorator_list or any(
            isinstance(one, ast.Raise | ast.Yield | ast.YieldFrom) for one in ast.walk(node)
        )
        if not is_stub and not is_open and not any(returned_values(node)):
            what = f"{item.dotted}.{name} returns nothing: a `return` is missing"
            return [Problem(path, what, item.module.place(node, word=name), _RETURNS[name])]
        break
    return []


def find_wrong_parameters(
    path: str, definition: Definition, finder: ModuleFinder, *, has_loss: bool
) -> list[Problem]:
    """A problem for each method of the user's task that the engine cannot call.

    ``has_loss`` says whether the config has a loss, which ``batch_loss`` may take.
    """
    problems = []
    chain, is_complete = class_definitions(definition, finder)
    lacks_loss_fn = has_method(definition, _LOSS_FN, finder) is False
    for name, given in read_table(_CALLED_WITH, finder).items() if is_complete else ():
        owner = next((item for item in chain if binds_name(item.node, name)), None)
        node = None if owner is None else find_method_node(owner.node, name)
        if owner is None or node is None or _is_library(owner) or is_set_on_self(chain, name):
            continue
        if node.decorator_list or node.args.vararg is not None:
            continue
        names = [one.arg for one in (*node.args.posonlyargs, *node.args.args)][1:]
        required = len(names) - len(node.args.defaults)
        takes_loss = name == "batch_loss" and len(names) >= 3
        wanted = (*given, _LOSS_FN) if takes_loss else given
        place = owner.module.place(node, word=name)
        if required > len(wanted) or len(names) < len(wanted) or None in node.args.kw_defaults:
            taken = ", ".join(names + [one.arg for one in node.args.kwonlyargs])
            what = f"{owner.dotted}.{name} takes ({taken}), but is called with "
            hint = f"write def {name}(self, {', '.join(given)})"
            problems.append(Problem(path, f"{what}({', '.join(wanted)})", place, hint))
        elif takes_loss and required == 3 and not has_loss and lacks_loss_fn:
            what = f"{owner.dotted}.batch_loss takes the loss of the config as its third "
            what += f"parameter, {names[2]!r}, but the config has none"
            hint = "add a section loss, or write def batch_loss(self, out, batch)"
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
