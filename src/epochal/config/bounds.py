"""Bounds of numbers as part of their types: ``width: Annotated[int, AtLeast(1)]``.

``epochal check`` reads them from source, for components of users too; ``guard`` checks our
own options, and ``guard_call`` arguments, when Python code gives them.
"""

from __future__ import annotations

import ast
import inspect
import operator
from abc import ABC
from dataclasses import dataclass, fields
from functools import lru_cache
from typing import TYPE_CHECKING, ClassVar, final

from epochal.errors import ConfigError, Problem

if TYPE_CHECKING:
    from collections.abc import Callable

    from _typeshed import DataclassInstance


@dataclass(frozen=True)
class Bound(ABC):
    """A limit that a number must keep."""

    limit: float
    words: ClassVar[str]
    keyword: ClassVar[str]
    """The name of the bound in a JSON Schema."""

    _compare: ClassVar[Callable[[float, float], bool]]

    def admits(self, value: float) -> bool:
        """Whether a number keeps the bound."""
        return type(self)._compare(value, self.limit)


@final
class AtLeast(Bound):
    """The number is the limit or larger."""

    words, keyword, _compare = "at least", "minimum", operator.ge


@final
class Above(Bound):
    """The number is larger than the limit."""

    words, keyword, _compare = "above", "exclusiveMinimum", operator.gt


@final
class AtMost(Bound):
    """The number is the limit or smaller."""

    words, keyword, _compare = "at most", "maximum", operator.le


@final
class Below(Bound):
    """The number is smaller than the limit."""

    words, keyword, _compare = "below", "exclusiveMaximum", operator.lt


_BOUNDS: dict[str, type[Bound]] = {kind.__name__: kind for kind in (AtLeast, Above, AtMost, Below)}


def broken_bound(value: object, bounds: tuple[Bound, ...]) -> Bound | None:
    """The first bound that a number breaks; anything but a number breaks none."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return next((bound for bound in bounds if not bound.admits(value)), None)


def explain(value: object, bound: Bound) -> tuple[str, str]:
    """What is wrong with a number that breaks a bound, and what to write instead."""
    wanted = f"{bound.words} {bound.limit}"
    return f"must be {wanted}, got {value!r}", f"write a number that is {wanted}"


def read_bound(expression: ast.expr) -> Bound | None:
    """The bound of an expression such as ``AtLeast(1)``; None for any other."""
    if not isinstance(expression, ast.Call):
        return None
    function = expression.func
    name = function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")
    values = [*expression.args, *(word.value for word in expression.keywords)]
    if name not in _BOUNDS or len(values) != 1:
        return None
    try:
        limit = ast.literal_eval(values[0])
    except ValueError:
        return None
    return _BOUNDS[name](limit) if isinstance(limit, int | float) else None


def guard(options: DataclassInstance, key: str) -> None:
    """Raise ConfigError if a field of a dataclass, shown as ``key.field``, breaks its bound.

    The types of the fields must be strings.
    """
    for item in fields(options):
        value = getattr(options, item.name)
        bound = broken_bound(value, _written_bounds(str(item.type)))
        if bound is not None:
            what, hint = explain(value, bound)
            raise ConfigError(Problem(f"{key}.{item.name}", what, hint=hint))


def guard_call(
    function: Callable[..., object], key: str, /, *args: object, **options: object
) -> None:
    """Raise ConfigError if an argument of a call, shown as ``key.name``, breaks its bound."""
    try:
        given = inspect.signature(function).bind_partial(*args, **options).arguments
    except TypeError:  # the call itself says what is wrong
        return
    written = getattr(function, "__annotations__", {})
    for name, value in given.items():
        kind = written.get(name)
        bound = broken_bound(value, _written_bounds(kind) if isinstance(kind, str) else ())
        if bound is not None:
            what, hint = explain(value, bound)
            raise ConfigError(Problem(f"{key}.{name}", what, hint=hint))


@lru_cache(maxsize=256)
def _written_bounds(annotation: str) -> tuple[Bound, ...]:
    found = (
        read_bound(node)
        for node in ast.walk(ast.parse(annotation, mode="eval"))
        if isinstance(node, ast.Call)
    )
    return tuple(bound for bound in found if bound is not None)
