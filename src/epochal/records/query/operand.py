"""What a name is compared with, read as the kind of value that it must be there."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, final

from epochal.records.index.schema import MAX_INTEGER, MIN_INTEGER
from epochal.records.query.values import (
    ACCEPTED_DATES,
    ACCEPTED_TIMES,
    read_length,
    read_number,
    read_period,
)

if TYPE_CHECKING:
    from datetime import datetime

    from epochal.errors import ConfigError
    from epochal.records.query.tokens import Written
    from epochal.records.query.tree import Value
    from epochal.records.query.values import Length, Period

_ORDER = ("<", "<=", ">", ">=")
_NO_PARTS = "~ finds parts of texts"


@final
@dataclass(frozen=True, slots=True)
class Operand:
    """The sign and the value of a comparison.

    Each reading raises a ConfigError that points at the value if it cannot be read so.
    """

    sign: str
    """One of ``= != < <= > >= ~``."""

    value: Value
    written: Written

    @property
    def text(self) -> str:
        """The value as it was typed, without quotes."""
        return self.value.text

    @property
    def is_order(self) -> bool:
        """Whether it asks for more or less."""
        return self.sign in _ORDER

    def find_number(self) -> float | str | None:
        """The number that it spells; as its digits if it is an integer that SQLite does not take.

        None if it is no number.
        """
        number = read_number(self.text)
        if number is not None and math.isnan(number) and self.is_order:
            raise self.mistake("nothing is more or less than nan", "write = nan or != nan")
        if not isinstance(number, int) or MIN_INTEGER <= number <= MAX_INTEGER:
            return number
        if self.is_order:
            what = f"integers are ordered up to {MAX_INTEGER}, got {self.text}"
            hint = f"write {float(number):.3g} for about so much; = and != take it exactly"
            raise self.mistake(what, hint)
        return str(number)

    def find_length(self) -> Length | None:
        """The length that it spells, such as ``10ep``; None if it is none."""
        return read_length(self.text)

    def read_number(self, shown: str) -> float | str:
        """The number that ``shown`` is compared with."""
        if self.sign == "~":
            raise self.mistake(f"{shown} is a number", _NO_PARTS)
        number = self.find_number()
        if number is None:
            what = f"{shown} is a number, got {self.text!r}"
            share = read_number(self.text.removesuffix("%"))
            hint = "write one such as 12 or 1e-4; names are not compared with each other"
            raise self.mistake(what, hint if share is None else f"write {share / 100:g}")
        return number

    def read_seconds(self, shown: str) -> float:
        """The length of time that ``shown`` is compared with."""
        if self.sign == "~":
            raise self.mistake(f"{shown} is a length of time", _NO_PARTS)
        length, number = read_length(self.text), read_number(self.text)
        if length is not None and length.unit == "s":
            return length.amount
        if number is None or math.isnan(number):
            what = f"{shown} is a length of time, got {self.text!r}"
            raise self.mistake(what, f"write {ACCEPTED_TIMES}")
        return float(number)

    def read_period(self, shown: str, now: datetime) -> Period:
        """The day, the minute or the like that ``shown`` is compared with."""
        period = read_period(self.text, now)
        if self.sign == "~":
            date = "2026-11" if period is None else self.text
            raise self.mistake(f"{shown} is a date", f"{_NO_PARTS}; write {shown} = {date}")
        if period is None:
            length = read_length(self.text)
            hint = f"write {ACCEPTED_DATES}"
            if length and length.unit == "s":
                hint = f"write age < {self.text}; {shown} is compared with dates"
            raise self.mistake(f"{shown} is a date, got {self.text!r}", hint)
        return period

    def no_order(self, shown: str) -> ConfigError:
        """The error of a text that is asked to be more or less than another."""
        what = f"no text is more or less than another, and {self.text!r} is no number"
        hint = f"write {shown} = {self.text}, or {shown} ~ {self.text} for a part of it"
        return self.mistake(what, hint)

    def mistake(self, what: str, hint: str) -> ConfigError:
        """The error that points at the value."""
        return self.written.mistake(self.value.token, what, hint=hint)
