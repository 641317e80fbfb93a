"""The parts of a query: its text, tokens, tree, and values such as numbers, times and dates."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Literal, NamedTuple, final

from epochal.errors import ConfigError, Problem
from epochal.records.index.index_database import MAX_INTEGER, MIN_INTEGER

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
        problem = Problem(self.key, f"{what}\n{shown}", hint=hint)
        return QueryError(problem, what=what, start=where.start, end=where.end)


@final
class QueryError(ConfigError):
    """A mistake in a query, from the character ``start`` to ``end``."""

    def __init__(self, problem: Problem, *, what: str, start: int, end: int) -> None:
        super().__init__(problem)
        self.what, self.start, self.end = what, start, end


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


_NUMBER = re.compile(r"[-+]?(?:[0-9][0-9_]*\.?[0-9]*|\.[0-9]+)(?:[eE][-+]?[0-9]{1,4})?")
_SPECIAL = {"inf": math.inf, "+inf": math.inf, "-inf": -math.inf, "nan": math.nan}
_MAX_DIGITS = 30
"""Longer integers are read as floats: no value of a config has so many digits."""

_QUANTITY = re.compile(r"([0-9]+(?:\.[0-9]+)?(?:[eE][-+]?[0-9]{1,2})?)(s|min|h|d|w|ep|st|sa)")
SECONDS = {"s": 1.0, "min": 60.0, "h": 3600.0, "d": 86_400.0, "w": 604_800.0}
"""The seconds in each unit of time."""

_DATE = re.compile(
    r"(?P<year>[0-9]{4})(?:-(?P<month>[0-9]{2})(?:-(?P<day>[0-9]{2})"
    r"(?:[T ](?P<hour>[0-9]{2}):(?P<minute>[0-9]{2})(?::(?P<second>[0-9]{2}))?)?)?)?"
)
_DAYS = {"today": 0, "yesterday": 1}
_NO_PARTS = "~ finds parts of texts"

ACCEPTED_TIMES = "30s, 20min, 2h, 7d or 4w"
ACCEPTED_DATES = "2026-11-15, 2026-11, 2026-11-15T18:30, today or yesterday"


class Quantity(NamedTuple):
    """An amount with a unit, such as ``2h`` or ``10ep``."""

    amount: float
    unit: str
    """``s`` for all times; ``ep``, ``st``, ``sa`` for epochs, steps and samples."""


class Period(NamedTuple):
    """The time that a date covers, in seconds since 1970."""

    begin: float
    end: float


def read_number(text: str) -> int | float | None:
    """The number in a word, integers as such; None if it is not a number."""
    if text.casefold() in _SPECIAL:
        return _SPECIAL[text.casefold()]
    if not _NUMBER.fullmatch(text):
        return None
    digits = text.replace("_", "")
    is_integer = digits.lstrip("+-").isdecimal() and len(digits) <= _MAX_DIGITS
    return int(digits) if is_integer else float(digits)


def read_quantity(text: str) -> Quantity | None:
    """The quantity in a word such as ``2h`` or ``10ep``; None if it is none."""
    found = _QUANTITY.fullmatch(text)
    if found is None:
        return None
    amount, unit = float(found[1]), found[2]
    return Quantity(amount * SECONDS[unit], "s") if unit in SECONDS else Quantity(amount, unit)


def read_period(text: str, now: datetime) -> Period | None:
    """The time that a year, month, day, minute, second, ``today`` or ``yesterday`` covers.

    In the local time zone; None if it is not a date.
    """
    try:
        begin, end = _read_day_name(text, now) or _read_date(text) or (None, None)
        if begin is None or end is None:
            return None
        return Period(begin.astimezone().timestamp(), end.astimezone().timestamp())
    except (ValueError, OverflowError, OSError):  # there is no such day
        return None


def read_time(text: str | None) -> datetime | None:
    """The time that the index stores as a text; None if it is damaged."""
    try:
        return None if text is None else datetime.fromisoformat(text)
    except ValueError:
        return None


def format_moment(text: str) -> str:
    """A recorded time in the local time zone; unreadable text stays as it is."""
    moment = read_time(text)
    return text if moment is None else f"{moment.astimezone():%Y-%m-%d %H:%M}"


def _read_day_name(text: str, now: datetime) -> tuple[datetime, datetime] | None:
    if text.casefold() not in _DAYS:
        return None
    midnight = now.astimezone().replace(hour=0, minute=0, second=0, microsecond=0, tzinfo=None)
    begin = midnight - timedelta(days=_DAYS[text.casefold()])
    return begin, begin + timedelta(days=1)


def _read_date(text: str) -> tuple[datetime, datetime] | None:
    found = _DATE.fullmatch(text)
    if found is None:
        return None
    year, month, day, hour, minute, second = (
        None if part is None else int(part) for part in found.groups()
    )
    begin = datetime(  # in the local time zone
        year or 0, month or 1, day or 1, hour or 0, minute or 0, second or 0
    )
    if month is None:
        return begin, begin.replace(year=begin.year + 1)
    if day is None:
        return begin, (begin + timedelta(days=31)).replace(day=1)
    if hour is None:
        return begin, begin + timedelta(days=1)
    return begin, begin + (timedelta(minutes=1) if second is None else timedelta(seconds=1))


@final
@dataclass(frozen=True, slots=True)
class Operand:
    """The right side of a comparison.

    The methods raise a ConfigError that points at the value if it has the wrong type.
    """

    operator: str
    """One of ``= != < <= > >= ~``."""

    value: Token
    query: QueryText

    @property
    def text(self) -> str:
        """The value without quotes."""
        return self.value.text

    @property
    def is_order(self) -> bool:
        """Whether the operator needs an order."""
        return self.operator in ("<", "<=", ">", ">=")

    def find_number(self) -> float | str | None:
        """The number, as digits if SQLite cannot hold the integer; None if it is not a number."""
        number = read_number(self.text)
        if number is not None and math.isnan(number) and self.is_order:
            raise self.error(
                "nan is neither larger nor smaller than a number", "write = nan or != nan"
            )
        if not isinstance(number, int) or MIN_INTEGER <= number <= MAX_INTEGER:
            return number
        if self.is_order:
            what = f"integers are ordered up to {MAX_INTEGER}, got {self.text}"
            hint = f"write {float(number):.3g} for an approximate value; = and != are exact"
            raise self.error(what, hint)
        return str(number)

    def read_number(self, shown: str) -> float | str:
        """The number that ``shown`` is compared with."""
        if self.operator == "~":
            raise self.error(f"{shown} is a number", _NO_PARTS)
        number = self.find_number()
        if number is None:
            percent = read_number(self.text.removesuffix("%"))
            hint = "write one such as 12 or 1e-4; names are not compared with each other"
            if percent is not None:
                hint = f"write {percent / 100:g}"
            raise self.error(f"{shown} is a number, got {self.text!r}", hint)
        return number

    def read_seconds(self, shown: str) -> float:
        """The length of time that ``shown`` is compared with."""
        if self.operator == "~":
            raise self.error(f"{shown} is a length of time", _NO_PARTS)
        quantity, number = read_quantity(self.text), read_number(self.text)
        if quantity is not None and quantity.unit == "s":
            return quantity.amount
        if number is None or math.isnan(number):
            what = f"{shown} is a length of time, got {self.text!r}"
            raise self.error(what, f"write {ACCEPTED_TIMES}")
        return float(number)

    def read_period(self, shown: str, now: datetime) -> Period:
        """The day, minute or other period that ``shown`` is compared with."""
        period = read_period(self.text, now)
        if self.operator == "~":
            date = "2026-11" if period is None else self.text
            raise self.error(f"{shown} is a date", f"{_NO_PARTS}; write {shown} = {date}")
        if period is None:
            quantity = read_quantity(self.text)
            hint = f"write {ACCEPTED_DATES}"
            if quantity and quantity.unit == "s":
                hint = f"write age < {self.text}; {shown} is compared with dates"
            raise self.error(f"{shown} is a date, got {self.text!r}", hint)
        return period

    def no_order(self, shown: str) -> ConfigError:
        """The error for texts, which have no order."""
        what = f"texts have no order, and {self.text!r} is not a number"
        hint = f"write {shown} = {self.text}, or {shown} ~ {self.text} for a part of it"
        return self.error(what, hint)

    def error(self, what: str, hint: str) -> ConfigError:
        """The error that points at the value."""
        return self.query.error(self.value, what, hint=hint)
