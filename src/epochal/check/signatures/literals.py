"""Evaluates default values from source, without running code."""

from __future__ import annotations

import ast
import math
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Any, Final, final

from epochal.registry.parsed_module import Variable

if TYPE_CHECKING:
    from epochal.registry.parsed_module import Module

Plain = Any  # what a config may contain: scalars, lists and mappings of them

# Calls whose only argument is the value in a config.
_TRANSPARENT = ("Path", "Duration", "parse_duration", "Every", "parse")
_FACTORIES: dict[str, Plain] = {"list": [], "tuple": [], "dict": {}, "set": []}


class Absent(Enum):
    """The type of ``MISSING``."""

    MISSING = "missing"


MISSING: Final = Absent.MISSING
"""The default of a parameter that has none."""


@final
@dataclass(frozen=True, slots=True)
class Opaque:
    """A default that is known only after running the code."""

    text: str


def read_literal(expression: ast.expr, module: Module, *, depth: int = 4) -> Plain | Opaque:
    """The value of ``expression`` as plain data; ``Opaque`` if it must be computed."""
    try:
        return to_plain(ast.literal_eval(expression))
    except (ValueError, TypeError, MemoryError, RecursionError):
        pass
    if isinstance(expression, ast.Name) and depth:
        binding = module.bindings.get(expression.id)
        if isinstance(binding, Variable):
            found = read_literal(binding.value, module, depth=depth - 1)
            return Opaque(expression.id) if isinstance(found, Opaque) else found
    if isinstance(expression, ast.Call):
        return _read_call(expression, module)
    if isinstance(expression, ast.Attribute) and expression.attr in ("inf", "nan"):
        return getattr(math, expression.attr)
    return Opaque(ast.unparse(expression))


def to_plain(value: object) -> Plain | Opaque:
    """A Python value as plain data of a config; ``Opaque`` if that is impossible."""
    from pathlib import PurePath

    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, PurePath):
        return str(value)
    children: list[Plain]
    if isinstance(value, list | tuple):
        children = [to_plain(child) for child in value]
        return Opaque(repr(value)) if _has_opaque(children) else children
    if isinstance(value, dict) and all(isinstance(key, str) for key in value):
        children = [to_plain(child) for child in value.values()]
        return (
            Opaque(repr(value))
            if _has_opaque(children)
            else dict(zip(value, children, strict=True))
        )
    return Opaque(repr(value))


def _has_opaque(children: list[Plain]) -> bool:
    return any(isinstance(child, Opaque) for child in children)


def _read_call(call: ast.Call, module: Module) -> Plain | Opaque:
    name = call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")
    if name in _FACTORIES and not call.args and not call.keywords:
        return _FACTORIES[name]
    if len(call.args) == 1 and not call.keywords:
        inner = read_literal(call.args[0], module)
        if name == "float" and inner in ("inf", "-inf", "nan"):
            return float(inner)
        if name in _TRANSPARENT and isinstance(inner, str):
            return inner
    return Opaque(ast.unparse(call))


def read_field_default(call: ast.Call, module: Module) -> Plain | Opaque | Absent:
    """The default that a call of ``dataclasses.field`` sets."""
    words = {word.arg: word.value for word in call.keywords}
    if "default" in words:
        return read_literal(words["default"], module)
    factory = words.get("default_factory")
    if factory is None:
        return MISSING
    if isinstance(factory, ast.Name) and factory.id in _FACTORIES:
        return _FACTORIES[factory.id]
    if isinstance(factory, ast.Lambda):
        return read_literal(factory.body, module)
    return Opaque(ast.unparse(factory))
