"""Signatures as data: parameters with types, defaults read from source, and documentation."""

from __future__ import annotations

import ast
import math
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import TYPE_CHECKING, Any, Final, final

from epochal.registry.parsed_module import Variable

if TYPE_CHECKING:
    from collections.abc import Mapping

    from epochal.registry.parsed_module import Definition, Module

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


_ALIASED = (ast.Subscript, ast.BinOp, ast.Name, ast.Attribute)


@final
@dataclass(frozen=True, slots=True)
class Parameter:
    """One argument of a component."""

    name: str
    """The key in a config: the argument's name without a trailing underscore."""

    annotation: str = ""
    """The type as written; empty if there is none."""

    default: Plain | Opaque | Absent = MISSING
    """``Opaque`` if it is known only after running the code."""

    doc: str = ""
    kind: str = "keyword"
    """``keyword``; ``positional`` or ``named`` if it can only be given that way; or
    ``variadic``: a list whose elements are passed one by one, as for ``*layers``."""

    argument: str = ""
    """The name of the factory's argument."""

    home: str = field(default="", compare=False, repr=False)
    """The module that contains the annotation; empty if unknown."""

    @property
    def is_required(self) -> bool:
        """Whether a config must set it."""
        return self.default is MISSING


@final
@dataclass(frozen=True, slots=True)
class Signature:
    """The parameters of a component."""

    owner: str
    """Full name of the component, for messages."""

    parameters: tuple[Parameter, ...] = ()
    open: bool = False
    """Whether it also takes arguments that are not listed, as with ``**kwargs``."""

    is_partial: bool = False
    """Whether missing values stay missing, as in the changes of a stage."""

    summary: str = ""
    definition: Definition | None = field(default=None, compare=False, repr=False)

    def get(self, name: str) -> Parameter | None:
        """The parameter with this config key, if there is one."""
        return next((item for item in self.parameters if item.name == name), None)

    @property
    def variadic(self) -> Parameter | None:
        """The parameter that takes any number of positional values, if there is one."""
        return next((item for item in self.parameters if item.kind == "variadic"), None)

    def before_variadic(self) -> tuple[Parameter, ...]:
        """The parameters that are passed by position before the values of the variadic one."""
        return tuple(item for item in self.parameters if item.kind in ("positional", "keyword"))


def list_of(annotation: str) -> str:
    """The type of the list that a config gives for a variadic parameter."""
    return f"list[{annotation}]" if annotation else "list"


def key_of(argument: str) -> str:
    """The config key of an argument: ``for`` for ``for_``."""
    return argument[:-1] if argument.endswith("_") and len(argument) > 1 else argument


def annotation_of(expression: ast.expr | None, module: Module) -> str:
    """An annotation as text, with aliases of the module replaced by their types."""
    return "" if expression is None else ast.unparse(_without_aliases(expression, module))


def _without_aliases(expression: ast.expr, module: Module, depth: int = 4) -> ast.expr:
    if isinstance(expression, ast.Name):
        binding = module.bindings.get(expression.id)
        if depth and isinstance(binding, Variable) and isinstance(binding.value, _ALIASED):
            return _without_aliases(binding.value, module, depth - 1)
    elif isinstance(expression, ast.BinOp):
        left = _without_aliases(expression.left, module, depth)
        right = _without_aliases(expression.right, module, depth)
        return ast.BinOp(left, expression.op, right)
    elif isinstance(expression, ast.Subscript):
        inner = _without_aliases(expression.slice, module, depth)
        return ast.Subscript(expression.value, inner, expression.ctx)
    elif isinstance(expression, ast.Tuple):
        parts = [_without_aliases(part, module, depth) for part in expression.elts]
        return ast.Tuple(parts, expression.ctx)
    return expression


def add_docs(parameters: tuple[Parameter, ...], docs: Mapping[str, str]) -> tuple[Parameter, ...]:
    """The parameters, each with its text from a docstring."""
    return tuple(replace(item, doc=item.doc or docs.get(item.argument, "")) for item in parameters)
