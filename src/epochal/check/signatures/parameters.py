"""Signatures as data: the parameters of a component, with types, defaults and documentation."""

from __future__ import annotations

import ast
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, final

from epochal.check.signatures.literals import MISSING, Absent, Opaque, Plain
from epochal.registry.parsed_module import Variable

if TYPE_CHECKING:
    from collections.abc import Mapping

    from epochal.registry.parsed_module import Definition, Module

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

    known: bool = True
    """False if the source could not be read; then nothing can be checked."""

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
