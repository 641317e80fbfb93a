"""Which attributes the code of a class uses, so that nobody doubts a method it calls itself."""

from __future__ import annotations

import dis
import sys
from types import CodeType, FunctionType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

_LOADS = frozenset({"LOAD_ATTR", "LOAD_METHOD"})


def names_used(*kinds: type) -> set[str]:
    """Every attribute that is read in these classes and in the modules where they stand."""
    names: set[str] = set()
    for kind in kinds:
        module = sys.modules.get(kind.__module__)
        for value in (kind, *vars(module or kind).values()):
            if getattr(value, "__module__", None) == kind.__module__:
                names.update(name for code in _codes(value) for name in _attributes(code))
    return names


def _codes(value: object) -> Iterator[CodeType]:
    if isinstance(value, FunctionType):
        yield value.__code__
    elif isinstance(value, property):
        for function in (value.fget, value.fset):
            yield from _codes(function)
    elif isinstance(value, staticmethod | classmethod):
        yield from _codes(value.__func__)
    elif isinstance(value, type):
        for member in vars(value).values():
            if not isinstance(member, type):
                yield from _codes(member)


def _attributes(code: CodeType) -> Iterator[str]:
    for instruction in dis.get_instructions(code):
        if instruction.opname in _LOADS:
            yield str(instruction.argval)
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _attributes(constant)
