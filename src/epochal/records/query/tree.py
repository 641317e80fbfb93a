"""The text, the tokens and the tree of a query."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, final

from epochal.errors import ConfigError, Problem

Function = Literal["last", "min", "max", "count"]

FUNCTIONS: tuple[Function, ...] = ("last", "min", "max", "count")
"""Summaries of a metric: ``val/acc`` alone is its last value."""

_SHOWN = 100


@final
@dataclass(frozen=True, slots=True)
class Token:
    """One word, quoted text, operator or punctuation mark of a query."""

    kind: str
    """``word``, ``text`` (quoted), ``sign``, ``end``, or the mark itself: ``(``, ``)``, ``,``."""

    text: str
    """Without quotes and escapes."""

    start: int
    end: int

    @property
    def is_quoted(self) -> bool:
        """Whether it was typed in quotes, so that it can only be a text."""
        return self.kind == "text"


@final
@dataclass(frozen=True, slots=True)
class QueryText:
    """The text of a query and the option or argument that it came from."""

    text: str
    key: str
    """Such as ``--where``."""

    def error(self, where: Token, what: str, *, hint: str = "") -> ConfigError:
        """The error that shows the query with carets under ``where``."""
        start, line = where.start, "".join(c if c.isprintable() else " " for c in self.text)
        if len(line) > _SHOWN:
            cut = max(0, min(start - _SHOWN // 2, len(line) - _SHOWN))
            start, line = start - cut, line[cut : cut + _SHOWN]
        indent = len(line) - len(line.lstrip())
        carets = "^" * max(1, min(where.end - where.start, len(line) - start))
        shown = f"    {line.strip()}\n    {' ' * max(start - indent, 0)}{carets}"
        return ConfigError(Problem(self.key, f"{what}\n{shown}", hint=hint))


@final
@dataclass(frozen=True, slots=True)
class Name:
    """The name in a comparison, a column or a sort key."""

    text: str
    token: Token
    function: Function = "last"

    @property
    def shown(self) -> str:
        """The name as a table heading shows it."""
        return self.text if self.function == "last" else f"{self.function}({self.text})"


@final
@dataclass(frozen=True, slots=True)
class SortKey:
    """One name to sort by."""

    name: Name
    is_descending: bool


@final
@dataclass(frozen=True, slots=True)
class Compare:
    """``name operator value``, or ``name in (value, ...)``."""

    name: Name
    operator: str
    """One of ``= != < <= > >= ~ !~``, ``in`` or ``not in``."""

    values: tuple[Token, ...]
    """One, or several for ``in`` and ``not in``."""


@final
@dataclass(frozen=True, slots=True)
class Missing:
    """``name is missing``."""

    name: Name


@final
@dataclass(frozen=True, slots=True)
class Not:
    """``not query``."""

    inner: Query


@final
@dataclass(frozen=True, slots=True)
class BoolOp:
    """Several queries joined by ``and`` or ``or``."""

    operator: Literal["and", "or"]
    parts: tuple[Query, ...]


Query = Compare | Missing | Not | BoolOp
