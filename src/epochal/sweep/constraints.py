"""Conditions on the values of a trial, such as ``model.width * model.depth <= 4096``."""

from __future__ import annotations

import ast
import operator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, final

from typing_extensions import override

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

_MAX_LENGTH = 500
_MAX_POWER = 64
_BINARY: Mapping[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
    ast.Pow: operator.pow,
}
_COMPARE: Mapping[type[ast.cmpop], Callable[[Any, Any], bool]] = {
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
}
ACCEPTED = "write for example model.width * model.depth <= 4096"


@final
@dataclass(frozen=True)
class ValueConstraint:
    """A comparison of keys, numbers and texts; nothing of it is executed as code."""

    text: str
    keys: frozenset[str]
    """The keys that it reads."""

    _tree: ast.expr

    def holds(self, values: Mapping[str, Any]) -> bool:
        """Whether it is true; also if one of its keys has no value, as it does not apply then."""
        if any(key not in values for key in self.keys):
            return True
        try:
            return bool(_evaluate(self._tree, values))
        except (TypeError, ValueError, ZeroDivisionError, OverflowError):
            return False

    @override
    def __str__(self) -> str:
        return self.text


def parse_constraint(text: str) -> ValueConstraint:
    """The constraint in a text.

    Raises:
        ValueError: It is no comparison of keys and numbers; the message says what is accepted.
    """
    if len(text) > _MAX_LENGTH:
        raise ValueError(f"a constraint has at most {_MAX_LENGTH} characters; {ACCEPTED}")
    try:
        tree = ast.parse(text.strip(), mode="eval").body
        keys = frozenset(_read_keys(tree))
    except (SyntaxError, RecursionError, MemoryError) as error:
        raise ValueError(f"expected a comparison, got {text!r}; {ACCEPTED}") from error
    if not isinstance(tree, ast.Compare | ast.BoolOp | ast.UnaryOp) or not keys:
        raise ValueError(f"expected a comparison of keys, got {text!r}; {ACCEPTED}")
    return ValueConstraint(text.strip(), keys, tree)


def _read_keys(node: ast.expr) -> set[str]:
    """The keys of an expression; ValueError if it is anything but arithmetic."""
    if isinstance(node, ast.Attribute | ast.Name):
        return {_dotted(node)}
    match node:
        case ast.Constant(value=bool() | int() | float() | str()):
            parts: list[ast.expr] = []
        case ast.BoolOp(values=parts):
            pass
        case ast.UnaryOp(op=ast.Not() | ast.USub(), operand=one):
            parts = [one]
        case ast.BinOp(left=left, op=op, right=right) if type(op) in _BINARY:
            parts = [left, right]
        case ast.Compare(left=left, ops=ops, comparators=others) if all(
            type(op) in _COMPARE for op in ops
        ):
            parts = [left, *others]
        case _:
            raise ValueError(f"{ast.unparse(node)!r} is not allowed in a constraint; {ACCEPTED}")
    return set().union(*(_read_keys(part) for part in parts)) if parts else set()


def _dotted(node: ast.expr) -> str:
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute):
        return f"{_dotted(node.value)}.{node.attr}"
    raise ValueError(f"{ast.unparse(node)!r} is not a key; {ACCEPTED}")


def _evaluate(node: ast.expr, values: Mapping[str, Any]) -> Any:  # noqa: ANN401 - number, text or bool
    match node:
        case ast.Constant(value=value):
            return value
        case ast.BoolOp(op=ast.And(), values=parts):
            return all(_evaluate(part, values) for part in parts)
        case ast.BoolOp(values=parts):
            return any(_evaluate(part, values) for part in parts)
        case ast.UnaryOp(op=ast.Not(), operand=one):
            return not _evaluate(one, values)
        case ast.UnaryOp(operand=one):
            return -_evaluate(one, values)
        case ast.BinOp(left=left, op=op, right=right):
            first, second = _evaluate(left, values), _evaluate(right, values)
            if isinstance(op, ast.Pow) and abs(second) > _MAX_POWER:
                raise OverflowError
            return _BINARY[type(op)](first, second)
        case ast.Compare(left=left, ops=ops, comparators=others):
            first = _evaluate(left, values)
            for comparison, other in zip(ops, others, strict=True):
                second = _evaluate(other, values)
                if not _COMPARE[type(comparison)](first, second):
                    return False
                first = second
            return True
        case _:
            return values[_dotted(node)]
