"""From the text of a query to its tree, and from lists of names to names."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar, final

from epochal.errors import suggest
from epochal.records.query.cursor import SIGNS, Cursor
from epochal.records.query.tokens import Token
from epochal.records.query.tree import (
    FUNCTIONS,
    Among,
    Compare,
    Joined,
    Missing,
    Name,
    Not,
    Order,
    Value,
)
from epochal.records.query.values import read_number

if TYPE_CHECKING:
    from collections.abc import Callable

    from epochal.records.query.tokens import Written
    from epochal.records.query.tree import Query

_One = TypeVar("_One")
_MAX_DEPTH = 50
_MAX_TESTS = 200
_MAX_VALUES = 500
_KEYWORDS = ("and", "or", "not", "in", "is")
_BETWEEN = "put a comma between names, such as val/acc, optim.lr"
_EXAMPLE = 'write a test such as "optim.lr > 1e-4", joined by and, or, not'


def parse_query(written: Written) -> Query:
    """The tree of a query such as ``optim.lr > 1e-4 and val/acc > 0.9``.

    Raises:
        ConfigError: It is no query; points at the place.
    """
    cursor = Cursor(written)
    query = _Parser(cursor).parse_any(0)
    cursor.finish()
    return query


def parse_names(written: Written) -> list[Name]:
    """The names of a list such as ``status, optim.lr, max(val/acc)``."""
    return _parse_list(Cursor(written), _parse_name)


def parse_orders(written: Written) -> list[Order]:
    """What to sort by, of a list such as ``tag, val/acc desc`` or ``-val/acc``."""
    return _parse_list(Cursor(written), _parse_order)


@final
class _Parser:
    """One function for each rule of the grammar."""

    def __init__(self, cursor: Cursor) -> None:
        self._cursor = cursor
        self._num_tests = 0

    def parse_any(self, depth: int) -> Query:
        """``all or all or ...``."""
        parts = [self._parse_all(depth)]
        while self._cursor.take_word("or"):
            parts.append(self._parse_all(depth))
        return parts[0] if len(parts) == 1 else Joined("or", tuple(parts))

    def _parse_all(self, depth: int) -> Query:
        parts = [self._parse_one(depth)]
        while self._cursor.take_word("and"):
            parts.append(self._parse_one(depth))
        return parts[0] if len(parts) == 1 else Joined("and", tuple(parts))

    def _parse_one(self, depth: int) -> Query:
        cursor = self._cursor
        if depth > _MAX_DEPTH:
            raise cursor.mistake(f"nested more than {_MAX_DEPTH} deep")
        if cursor.take_word("not"):
            return Not(self._parse_one(depth + 1))
        if cursor.next.kind != "(":
            return self._parse_test()
        opened = cursor.take()
        inner = self.parse_any(depth + 1)
        cursor.close(opened)
        return inner

    def _parse_test(self) -> Query:
        cursor = self._cursor
        self._num_tests += 1
        if self._num_tests > _MAX_TESTS:
            raise cursor.mistake(f"more than {_MAX_TESTS} tests")
        name = _parse_name(cursor, _EXAMPLE)
        if cursor.take_word("is"):
            return self._parse_missing(name)
        if cursor.take_word("in"):
            return Among(name, self._parse_values(name.shown))
        if cursor.take_word("not"):
            if not cursor.take_word("in"):
                raise cursor.unexpected("in", f'write "{name.shown} not in (1, 2)"')
            return Among(name, self._parse_values(name.shown), is_negated=True)
        if cursor.next.kind != "sign" or cursor.next.text not in SIGNS:
            meant = cursor.meant() or f'write "{name.shown} = VALUE", with = != < <= > >= or ~'
            raise cursor.unexpected(f"a comparison after {name.shown!r}", meant)
        return Compare(name, SIGNS[cursor.take().text], self._parse_value())

    def _parse_missing(self, name: Name) -> Query:
        is_negated = self._cursor.take_word("not")
        if not self._cursor.take_word("missing"):
            sign = "!=" if is_negated else "="
            got = self._cursor.next
            value = got.text if got.kind == "word" else "VALUE"
            hint = f'write "{name.shown} is missing", or "{name.shown} {sign} {value}"'
            raise self._cursor.unexpected("missing", hint)
        return Not(Missing(name)) if is_negated else Missing(name)

    def _parse_values(self, shown: str) -> tuple[Value, ...]:
        cursor, opened = self._cursor, self._cursor.next
        if not cursor.take_mark("("):
            raise cursor.unexpected("values in parentheses", f'write "{shown} in (1, 2)"')
        values = [self._parse_value()]
        while cursor.take_mark(","):
            values.append(self._parse_value())
        if len(values) > _MAX_VALUES:
            raise cursor.mistake(f"more than {_MAX_VALUES} values", where=opened)
        cursor.close(opened)
        return tuple(values)

    def _parse_value(self) -> Value:
        cursor, token = self._cursor, self._cursor.next
        if token.kind == "end":
            raise cursor.unexpected("a value", "write one such as 12 or 1e-4, or a text")
        if token.kind not in ("word", "text"):
            raise cursor.unexpected("a value", "put a text with such characters into quotes")
        if token.kind == "word" and token.text.casefold() in _KEYWORDS:
            raise cursor.unexpected("a value", f"put {token.text!r} into quotes if it is one")
        if token.kind == "word" and "*" in token.text:
            hint = f"~ finds a part of a text: ~ {token.text.replace('*', '') or 'PART'}"
            raise cursor.mistake("'*' stands for nothing here", hint=hint)
        cursor.take()
        return Value(token.text, token)


def _parse_list(cursor: Cursor, parse_one: Callable[[Cursor], _One]) -> list[_One]:
    found = [parse_one(cursor)]
    while cursor.take_mark(","):
        found.append(parse_one(cursor))
    if cursor.next.kind != "end":
        raise cursor.unexpected("a comma or the end", _BETWEEN)
    return found


def _parse_order(cursor: Cursor) -> Order:
    token = cursor.next
    if token.kind == "word" and token.text.startswith("-"):
        cursor.take()
        if len(token.text) == 1:  # before a name in quotes
            return Order(_parse_name(cursor), is_descending=True)
        name = Token("word", token.text[1:], token.start + 1, token.end)
        return Order(_name_of(cursor, name), is_descending=True)
    found = _parse_name(cursor)
    if cursor.take_word("desc"):
        return Order(found, is_descending=True)
    cursor.take_word("asc")
    return Order(found, is_descending=False)


def _parse_name(cursor: Cursor, hint: str = _BETWEEN) -> Name:
    """A word, a quoted word, or a function of one."""
    token = cursor.next
    if token.kind not in ("word", "text"):
        raise cursor.unexpected("a name", hint)
    if token.kind == "word" and token.text.casefold() in _KEYWORDS:
        raise cursor.unexpected("a name", f"put {token.text!r} into quotes if it is one")
    if token.kind == "word" and read_number(token.text) is not None:
        hint = "the name comes first: write optim.lr > 1e-4, not 1e-4 < optim.lr"
        raise cursor.mistake(f"expected a name, got {token.text}", hint=hint)
    return _name_of(cursor, cursor.take())


def _name_of(cursor: Cursor, token: Token) -> Name:
    if token.kind == "text" or cursor.next.kind != "(":
        return Name(token.text, token)
    function = next((one for one in FUNCTIONS if one == token.text.casefold()), None)
    if function is None:
        hint = suggest(token.text, FUNCTIONS)
        raise cursor.mistake(f"unknown function {token.text!r}", hint=hint, where=token)
    opened, inner = cursor.take(), cursor.next
    if inner.kind not in ("word", "text"):
        raise cursor.unexpected("the name of a metric", f"write {function}(val/loss)")
    cursor.take()
    closing = cursor.close(opened, f"write {function}({inner.text})")
    return Name(inner.text, Token("word", inner.text, token.start, closing.end), function)
