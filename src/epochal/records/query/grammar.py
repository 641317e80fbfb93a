"""Parses queries, lists of names and lists of sort keys."""

from __future__ import annotations

import re
from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Literal, TypeVar, final

from epochal.errors import ConfigError, Problem, suggest
from epochal.records.query.syntax import (
    ACCEPTED_TIMES,
    FUNCTIONS,
    BoolOp,
    Compare,
    Missing,
    Name,
    Not,
    SortKey,
    Token,
    read_number,
    read_period,
    read_quantity,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from epochal.records.query.syntax import Query, QueryText

_T = TypeVar("_T")
_MAX_LENGTH = 10_000
_MAX_DEPTH = 50
_MAX_TESTS = 200
_MAX_VALUES = 500

_TOKENS = re.compile(
    r"""\s+
    |(?P<word>[\w./+@:%*\[\]-]+)
    |(?P<sign>[<>=!~&|]+)
    |(?P<mark>[(),])
    |(?P<text>"(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*')
    |(?P<unclosed>["'].*)
    |(?P<unknown>.)""",
    re.VERBOSE | re.DOTALL,
)
_ESCAPED = re.compile(r"\\(.)", re.DOTALL)
_INVALID = re.compile("[\0\ud800-\udfff]")

_KEYWORDS = ("and", "or", "not", "in", "is")
_OPERATORS = ("=", "==", "!=", "<", "<=", ">", ">=", "~", "!~")
_CORRECTIONS = {
    "&": "and", "&&": "and", "|": "or", "||": "or", "!": "not", "<>": "!=", "===": "=", "!==": "!=",
    "=~": "~", "~~": "~", "=>": ">=", "=<": "<=", "like": "~", "contains": "~", "matches": "~",
    "equals": "=", "startswith": "~", "endswith": "~", ",": "and",
}  # fmt: skip
_COMPARE_TWICE = "compare twice: optim.lr > 1e-4 and optim.lr < 1e-2"
_USE_QUOTES = "put a text with such characters into quotes"
_USE_COMMA = "put a comma between names, such as val/acc, optim.lr"
_EXAMPLE = 'write a test such as "optim.lr > 1e-4", joined by and, or, not'


def parse_query(query: QueryText) -> Query:
    """The tree of ``optim.lr > 1e-4 and val/acc > 0.9``; ConfigError points at the place."""
    parser = _Parser(query)
    tree = parser.parse_bool(0)
    parser.tokens.finish()
    return tree


def parse_names(query: QueryText) -> list[Name]:
    """The names of a list such as ``status, optim.lr, max(val/acc)``."""
    parser = _Parser(query)
    return parser.parse_list(parser.parse_name)


def parse_sort_keys(query: QueryText) -> list[SortKey]:
    """The sort keys of a list such as ``tag, val/acc desc`` or ``-val/acc``."""
    parser = _Parser(query)
    return parser.parse_list(parser.parse_sort_key)


def tokenize(query: QueryText) -> list[Token]:
    """The tokens of a query; the last one has the kind ``end``."""
    if len(query.text) > _MAX_LENGTH:
        what = f"longer than {_MAX_LENGTH} characters"
        raise ConfigError(Problem(query.key, what, hint="split it into shorter queries"))
    tokens = []
    for match in _TOKENS.finditer(query.text):
        kind, text = match.lastgroup, match[0]
        if kind is None:  # white space
            continue
        token = Token(text if kind == "mark" else kind, text, *match.span())
        if kind == "unclosed":
            raise query.error(token, "a quote was opened but not closed", hint=f"add {text[0]}")
        if kind == "unknown":
            raise query.error(token, f"{text!r} has no meaning here", hint=_USE_QUOTES)
        if kind == "text":
            if _INVALID.search(text):
                raise query.error(token, "a text cannot hold this character")
            token = replace(token, text=_ESCAPED.sub(r"\1", text[1:-1]))
        tokens.append(token)
    end = len(query.text.rstrip())
    return [*tokens, Token("end", "", end, end)]


@final
class _Tokens:
    """The tokens of a query and the position up to which they are parsed."""

    def __init__(self, query: QueryText) -> None:
        self._query = query
        self._tokens = tokenize(query)
        self._at = 0

    @property
    def next(self) -> Token:
        """The next token."""
        return self._tokens[self._at]

    def take(self) -> Token:
        """The next token, which is taken."""
        self._at += 1
        return self._tokens[self._at - 1]

    def take_if(self, expected: str) -> bool:
        """Whether a mark, or a word in any case, comes next; if so, it is taken."""
        token = self.next
        is_next = expected == (token.text.casefold() if token.kind == "word" else token.kind)
        self._at += is_next
        return is_next

    def check_operand(self, expected: str, hint: str) -> None:
        """Refuse what is neither a word nor a text, and keywords."""
        token = self.next
        if token.kind not in ("word", "text"):
            raise self.unexpected(expected, hint)
        if token.kind == "word" and token.text.casefold() in _KEYWORDS:
            raise self.unexpected(expected, f"put {token.text!r} into quotes if it is one")

    def close(self, opening: Token, hint: str = "") -> Token:
        """Take the parenthesis that closes ``opening``."""
        if self.next.kind == "end":
            what = "a parenthesis was opened but not closed"
            raise self.error(what, hint="add )", where=opening)
        if self.next.kind != ")":
            raise self.unexpected("')'" if hint else "and, or, ')'", hint or self.meant())
        return self.take()

    def finish(self) -> None:
        """Refuse what follows a complete query."""
        if self.next.kind == "end":
            return
        if self.next.kind == ")":
            raise self.error("a parenthesis was closed but not opened")
        if self.next.kind == "sign" and self.next.text in _OPERATORS:
            raise self.error("one comparison follows another", hint=_COMPARE_TWICE)
        raise self.unexpected("and, or, or the end", self.meant())

    def error(self, what: str, *, hint: str = "", where: Token | None = None) -> ConfigError:
        """The error that points at the next token, or at ``where``."""
        return self._query.error(where or self.next, what, hint=hint)

    def unexpected(self, expected: str, hint: str) -> ConfigError:
        """The error for an unexpected next token."""
        got = "the end" if self.next.kind == "end" else repr(self.next.text)
        return self.error(f"expected {expected}, got {got}", hint=hint)

    def meant(self) -> str:
        """A hint about the unexpected next token; may be empty."""
        token = self.next
        if meant := _CORRECTIONS.get(token.text.casefold()):
            return f"did you mean {meant!r}?"
        if token.text.casefold() == "between":
            return _COMPARE_TWICE
        if self._tokens[self._at + 1 :] and self._tokens[self._at + 1].kind == "sign":
            return "join two tests by and, or by or"
        before = self._tokens[self._at - 1]
        return _join_hint(before.text, token.text) if token.kind == before.kind == "word" else ""


@final
class _Parser:
    """A recursive descent parser: one method per rule of the grammar."""

    def __init__(self, query: QueryText) -> None:
        self.tokens = _Tokens(query)
        self._num_tests = 0

    def parse_bool(self, depth: int, operator: Literal["and", "or"] = "or") -> Query:
        """``part or part or ...``, where each part is ``part and part and ...``."""
        parts: list[Query] = []
        while not parts or self.tokens.take_if(operator):
            is_or = operator == "or"
            parts.append(self.parse_bool(depth, "and") if is_or else self._parse_not(depth))
        return parts[0] if len(parts) == 1 else BoolOp(operator, tuple(parts))

    def _parse_not(self, depth: int) -> Query:
        tokens = self.tokens
        if depth > _MAX_DEPTH:
            raise tokens.error(f"nested more than {_MAX_DEPTH} deep")
        if tokens.take_if("not"):
            return Not(self._parse_not(depth + 1))
        opening = tokens.next
        if not tokens.take_if("("):
            return self._parse_test()
        inner = self.parse_bool(depth + 1)
        tokens.close(opening)
        return inner

    def _parse_test(self) -> Query:
        tokens = self.tokens
        self._num_tests += 1
        if self._num_tests > _MAX_TESTS:
            raise tokens.error(f"more than {_MAX_TESTS} tests")
        name = self.parse_name(_EXAMPLE)
        if tokens.take_if("is"):
            return self._parse_missing(name)
        is_negated = tokens.take_if("not")
        if tokens.take_if("in"):
            return Compare(name, "not in" if is_negated else "in", self._parse_values(name.shown))
        if is_negated:
            raise tokens.unexpected("in", f'write "{name.shown} not in (1, 2)"')
        if tokens.next.kind != "sign" or tokens.next.text not in _OPERATORS:
            hint = tokens.meant() or f'write "{name.shown} = VALUE", with = != < <= > >= or ~'
            if tokens.next.kind == "end" and name.shown.isalnum():
                hint += f'; "tag ~ {name.shown}" finds it in tags'
            raise tokens.unexpected(f"a comparison after {name.shown!r}", hint)
        operator = tokens.take().text
        return Compare(name, "=" if operator == "==" else operator, (self._parse_value(),))

    def _parse_missing(self, name: Name) -> Query:
        tokens = self.tokens
        is_negated = tokens.take_if("not")
        if not tokens.take_if("missing"):
            value = tokens.next.text if tokens.next.kind == "word" else "VALUE"
            instead = f"{name.shown} {'!=' if is_negated else '='} {value}"
            raise tokens.unexpected("missing", f'write "{name.shown} is missing", or "{instead}"')
        return Not(Missing(name)) if is_negated else Missing(name)

    def _parse_values(self, shown: str) -> tuple[Token, ...]:
        tokens, opening = self.tokens, self.tokens.next
        if not tokens.take_if("("):
            raise tokens.unexpected("values in parentheses", f'write "{shown} in (1, 2)"')
        values = [self._parse_value()]
        while tokens.take_if(","):
            values.append(self._parse_value())
        if len(values) > _MAX_VALUES:
            raise tokens.error(f"more than {_MAX_VALUES} values", where=opening)
        tokens.close(opening)
        return tuple(values)

    def _parse_value(self) -> Token:
        tokens, token = self.tokens, self.tokens.next
        if token.kind == "end":
            raise tokens.unexpected("a value", "write one such as 12 or 1e-4, or a text")
        tokens.check_operand("a value", _USE_QUOTES)
        if token.kind == "word" and "*" in token.text:
            hint = f"~ finds a part of a text: ~ {token.text.replace('*', '') or 'PART'}"
            raise tokens.error("'*' has no meaning here", hint=hint)
        return tokens.take()

    def parse_list(self, parse_item: Callable[[], _T]) -> list[_T]:
        """``item, item, ...`` up to the end."""
        tokens = self.tokens
        items = [parse_item()]
        while tokens.take_if(","):
            items.append(parse_item())
        if tokens.next.kind != "end":
            raise tokens.unexpected("a comma or the end", _USE_COMMA)
        return items

    def parse_sort_key(self) -> SortKey:
        """A name, with ``-`` before it or ``desc`` after it to reverse the order."""
        tokens, token = self.tokens, self.tokens.next
        if token.kind == "word" and token.text.startswith("-"):
            tokens.take()
            if token.text == "-":  # before a name in quotes
                return SortKey(self.parse_name(), is_descending=True)
            name = replace(token, text=token.text[1:], start=token.start + 1)
            return SortKey(self._parse_function(name), is_descending=True)
        found = self.parse_name()
        is_descending = tokens.take_if("desc")
        if not is_descending:
            tokens.take_if("asc")
        return SortKey(found, is_descending)

    def parse_name(self, hint: str = _USE_COMMA) -> Name:
        """A word, a quoted word, or a function of one."""
        tokens = self.tokens
        tokens.check_operand("a name", hint)
        token = tokens.next
        if token.kind == "word" and read_number(token.text) is not None:
            hint = "the name comes first: write optim.lr > 1e-4, not 1e-4 < optim.lr"
            raise tokens.error(f"expected a name, got {token.text}", hint=hint)
        return self._parse_function(tokens.take())

    def _parse_function(self, token: Token) -> Name:
        tokens = self.tokens
        if token.is_quoted or tokens.next.kind != "(":
            return Name(token.text, token)
        function = next((one for one in FUNCTIONS if one == token.text.casefold()), None)
        if function is None:
            hint = suggest(token.text, FUNCTIONS)
            raise tokens.error(f"unknown function {token.text!r}", hint=hint, where=token)
        opening, inner = tokens.take(), tokens.next
        if inner.kind not in ("word", "text"):
            raise tokens.unexpected("the name of a metric", f"write {function}(val/loss)")
        tokens.take()
        closing = tokens.close(opening, f"write {function}({inner.text})")
        return Name(inner.text, replace(token, text=inner.text, end=closing.end), function)


def _join_hint(first: str, second: str) -> str:
    """How to write two words that follow each other as one value."""
    if read_quantity(first + second) is not None:
        return f"write {first}{second}"
    if read_period(f"{first}T{second}", datetime.now(UTC)) is not None:
        return f"write {first}T{second}"
    if read_number(first) is not None:
        return f"a length is written {ACCEPTED_TIMES}, 10ep or 500st"
    return f"put a text with spaces into quotes: '{first} {second}'"
