"""From the text of a query to a small tree, and of lists of names to names."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, TypeVar, final

from epochal.errors import suggest
from epochal.records.query.tokens import Token, Written, split

if TYPE_CHECKING:
    from collections.abc import Callable

Function = Literal["last", "min", "max", "count"]
_One = TypeVar("_One")

FUNCTIONS: tuple[Function, ...] = ("last", "min", "max", "count")
"""What can be asked of a metric: ``val/acc`` alone is its last value."""

_MAX_DEPTH = 50
_MAX_TESTS = 200
_MAX_VALUES = 500
_SIGNS = {"=": "=", "==": "=", "!=": "!=", "~": "~", "!~": "!~"} | {
    sign: sign for sign in ("<", "<=", ">", ">=")
}
_MEANT = {
    "&": "and", "&&": "and", "|": "or", "||": "or", "!": "not", "<>": "!=", "===": "=", "!==": "!=",
    "=~": "~", "~~": "~", "=>": ">=", "=<": "<=", "like": "~", "contains": "~", "matches": "~",
    "equals": "=", "is": "=",
}  # fmt: skip
_KEYWORDS = ("and", "or", "not", "in", "is")
_EXAMPLE = 'write a test such as "optim.lr > 1e-4", joined by and, or, not'


@final
@dataclass(frozen=True, slots=True)
class Name:
    """What a test, a column or an order is about."""

    text: str
    token: Token
    function: Function = "last"

    @property
    def shown(self) -> str:
        """As a heading says it."""
        return self.text if self.function == "last" else f"{self.function}({self.text})"


@final
@dataclass(frozen=True, slots=True)
class Value:
    """What a name is compared with."""

    text: str
    token: Token

    @property
    def is_quoted(self) -> bool:
        """Whether it can only be a text."""
        return self.token.kind == "text"


@final
@dataclass(frozen=True, slots=True)
class Compare:
    """``name sign value``."""

    name: Name
    sign: str
    """One of ``= != < <= > >= ~ !~``."""

    value: Value


@final
@dataclass(frozen=True, slots=True)
class Among:
    """``name in (value, ...)``."""

    name: Name
    values: tuple[Value, ...]


@final
@dataclass(frozen=True, slots=True)
class Missing:
    """``name is missing``."""

    name: Name


@final
@dataclass(frozen=True, slots=True)
class Not:
    """The opposite of a test."""

    inner: Query


@final
@dataclass(frozen=True, slots=True)
class Joined:
    """Several tests, all or any of which must hold."""

    word: Literal["and", "or"]
    parts: tuple[Query, ...]


Query = Compare | Among | Missing | Not | Joined


@final
@dataclass(frozen=True, slots=True)
class Order:
    """One name to sort by."""

    name: Name
    is_descending: bool


def parse_query(written: Written) -> Query:
    """The tree of a query such as ``optim.lr > 1e-4 and val/acc > 0.9``.

    Raises:
        ConfigError: It is no query; points at the place.
    """
    parser = _Parser(written)
    query = parser.parse_any(0)
    parser.finish()
    return query


def parse_names(written: Written) -> list[Name]:
    """The names of a list such as ``status, optim.lr, max(val/acc)``."""
    parser = _Parser(written)
    return parser.parse_list(parser.parse_name)


def parse_orders(written: Written) -> list[Order]:
    """What to sort by, of a list such as ``tag, val/acc desc`` or ``-val/acc``."""
    parser = _Parser(written)
    return parser.parse_list(parser.parse_order)


@final
class _Parser:
    """Goes through the tokens once, one function for each rule of the grammar."""

    def __init__(self, written: Written) -> None:
        self._written = written
        self._tokens = split(written)
        self._at = 0
        self._num_tests = 0

    def parse_any(self, depth: int) -> Query:
        """``all or all or ...``."""
        parts = [self._parse_all(depth)]
        while self._take_word("or"):
            parts.append(self._parse_all(depth))
        return parts[0] if len(parts) == 1 else Joined("or", tuple(parts))

    def parse_list(self, parse_one: Callable[[], _One]) -> list[_One]:
        """``one, one, ...`` up to the end."""
        found = [parse_one()]
        while self._next.kind == ",":
            self._at += 1
            found.append(parse_one())
        self.finish()
        return found

    def parse_order(self) -> Order:
        """A name, and whether the largest comes first."""
        token = self._next
        if token.kind == "word" and token.text.startswith("-") and len(token.text) > 1:
            self._tokens[self._at] = Token("word", token.text[1:], token.start + 1, token.end)
            return Order(self.parse_name(), is_descending=True)
        name = self.parse_name()
        if self._take_word("desc"):
            return Order(name, is_descending=True)
        self._take_word("asc")
        return Order(name, is_descending=False)

    def parse_name(self) -> Name:
        """A word, a quoted word, or a function of one."""
        token = self._next
        if token.kind not in ("word", "text"):
            raise self._unexpected("a name", _EXAMPLE)
        if token.kind == "word" and token.text.casefold() in _KEYWORDS:
            raise self._unexpected("a name", f"put {token.text!r} into quotes if it is one")
        if token.kind == "word" and _is_number(token.text):
            hint = "the name comes first: write optim.lr > 1e-4, not 1e-4 < optim.lr"
            raise self._written.mistake(token, f"expected a name, got {token.text}", hint=hint)
        self._at += 1
        if token.kind == "text" or self._next.kind != "(":
            return Name(token.text, token)
        return self._parse_function(token)

    def finish(self) -> None:
        """Complain about whatever is left."""
        token = self._next
        if token.kind == "end":
            return
        if token.kind == ")":
            raise self._written.mistake(token, "a parenthesis is closed that was not opened")
        if token.kind == "sign" and token.text in _SIGNS:
            hint = "compare twice: optim.lr > 1e-4 and optim.lr < 1e-2"
            raise self._written.mistake(token, "one comparison after the other", hint=hint)
        raise self._unexpected("and, or, or the end", self._meant(token))

    def _parse_all(self, depth: int) -> Query:
        parts = [self._parse_one(depth)]
        while self._take_word("and"):
            parts.append(self._parse_one(depth))
        return parts[0] if len(parts) == 1 else Joined("and", tuple(parts))

    def _parse_one(self, depth: int) -> Query:
        if depth > _MAX_DEPTH:
            raise self._written.mistake(self._next, f"nested more than {_MAX_DEPTH} deep")
        if self._take_word("not"):
            return Not(self._parse_one(depth + 1))
        if self._next.kind != "(":
            return self._parse_test()
        opened = self._next
        self._at += 1
        inner = self.parse_any(depth + 1)
        self._close(opened)
        return inner

    def _parse_test(self) -> Query:
        self._num_tests += 1
        if self._num_tests > _MAX_TESTS:
            raise self._written.mistake(self._next, f"more than {_MAX_TESTS} tests")
        name = self.parse_name()
        if self._next.kind == "word" and self._next.text.casefold() == "is":
            return self._parse_missing(name)
        if self._take_word("in"):
            return Among(name, self._parse_values())
        if self._take_word("not"):
            if not self._take_word("in"):
                raise self._unexpected("in", f'write "{name.shown} not in (1, 2)"')
            return Not(Among(name, self._parse_values()))
        sign = self._next
        if sign.kind != "sign" or sign.text not in _SIGNS:
            meant = self._meant(sign) or f'write "{name.shown} = VALUE", with = != < <= > >= or ~'
            raise self._unexpected(f"a comparison after {name.shown!r}", meant)
        self._at += 1
        return Compare(name, _SIGNS[sign.text], self._parse_value())

    def _parse_missing(self, name: Name) -> Query:
        self._at += 1
        is_negated = self._take_word("not")
        if not self._take_word("missing"):
            hint = f'write "{name.shown} is missing", or "{name.shown} = VALUE"'
            raise self._unexpected("missing", hint)
        return Not(Missing(name)) if is_negated else Missing(name)

    def _parse_values(self) -> tuple[Value, ...]:
        opened = self._next
        if opened.kind != "(":
            raise self._unexpected("values in parentheses", "write in (a, b)")
        self._at += 1
        values = [self._parse_value()]
        while self._next.kind == ",":
            self._at += 1
            values.append(self._parse_value())
        if len(values) > _MAX_VALUES:
            raise self._written.mistake(opened, f"more than {_MAX_VALUES} values")
        self._close(opened)
        return tuple(values)

    def _parse_value(self) -> Value:
        token = self._next
        if token.kind not in ("word", "text"):
            raise self._unexpected("a value", "put a text with such characters into quotes")
        if token.kind == "word" and token.text.casefold() in _KEYWORDS:
            raise self._unexpected("a value", f"put {token.text!r} into quotes if it is one")
        if token.kind == "word" and "*" in token.text:
            hint = f"~ finds a part of a text: ~ {token.text.replace('*', '') or 'PART'}"
            raise self._written.mistake(token, "'*' stands for nothing here", hint=hint)
        self._at += 1
        return Value(token.text, token)

    def _parse_function(self, token: Token) -> Name:
        function = next((one for one in FUNCTIONS if one == token.text.casefold()), None)
        if function is None:
            hint = suggest(token.text, FUNCTIONS)
            raise self._written.mistake(token, f"unknown function {token.text!r}", hint=hint)
        opened = self._next
        self._at += 1
        inner = self._next
        if inner.kind not in ("word", "text"):
            raise self._unexpected("the name of a metric", f"write {function}(val/loss)")
        self._at += 1
        closing = self._close(opened)
        return Name(inner.text, Token("word", inner.text, token.start, closing.end), function)

    def _close(self, opened: Token) -> Token:
        token = self._next
        if token.kind == "end":
            what = "a parenthesis is opened and not closed"
            raise self._written.mistake(opened, what, hint="add )")
        if token.kind != ")":
            raise self._unexpected("and, or, ')'", self._meant(token))
        self._at += 1
        return token

    @property
    def _next(self) -> Token:
        return self._tokens[self._at]

    def _take_word(self, word: str) -> bool:
        is_there = self._next.kind == "word" and self._next.text.casefold() == word
        self._at += is_there
        return is_there

    def _unexpected(self, expected: str, hint: str) -> Exception:
        token = self._next
        got = "the end" if token.kind == "end" else repr(token.text)
        return self._written.mistake(token, f"expected {expected}, got {got}", hint=hint)

    def _meant(self, token: Token) -> str:
        meant = _MEANT.get(token.text.casefold(), "")
        return f"did you mean {meant!r}?" if meant else ""


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return text.casefold() not in ("nan", "inf", "infinity")
