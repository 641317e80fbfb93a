"""The tree of a query: tests of names, joined by and, or, not."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, final

if TYPE_CHECKING:
    from epochal.records.query.tokens import Token

Function = Literal["last", "min", "max", "count"]

FUNCTIONS: tuple[Function, ...] = ("last", "min", "max", "count")
"""What can be asked of a metric: ``val/acc`` alone is its last value."""


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
    is_negated: bool = False
    """Whether it is ``not in``, which a run that lacks the value does not meet, as with ``!=``."""


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
