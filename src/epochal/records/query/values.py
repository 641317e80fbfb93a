"""What the words of a query can mean: numbers, spans of time, days and dates."""

from __future__ import annotations

import math
import re
from datetime import datetime, timedelta
from typing import NamedTuple

_NUMBER = re.compile(r"[-+]?(?:[0-9][0-9_]*\.?[0-9]*|\.[0-9]+)(?:[eE][-+]?[0-9]{1,4})?")
_SPECIAL = {"inf": math.inf, "+inf": math.inf, "-inf": -math.inf, "nan": math.nan}
_MAX_DIGITS = 30
"""Longer integers are as good as floats: no value of a config has so many digits."""

_LENGTH = re.compile(r"([0-9]+(?:\.[0-9]+)?(?:[eE][-+]?[0-9]{1,2})?)(s|min|h|d|w|ep|st|sa)")
SECONDS = {"s": 1.0, "min": 60.0, "h": 3600.0, "d": 86_400.0, "w": 604_800.0}
"""How long each unit of time is."""

_DATE = re.compile(
    r"(?P<year>[0-9]{4})(?:-(?P<month>[0-9]{2})(?:-(?P<day>[0-9]{2})"
    r"(?:[T ](?P<hour>[0-9]{2}):(?P<minute>[0-9]{2})(?::(?P<second>[0-9]{2}))?)?)?)?"
)
_DAYS = {"today": 0, "yesterday": 1}

ACCEPTED_TIMES = "30s, 20min, 2h, 7d or 4w"
ACCEPTED_DATES = "2026-11-15, 2026-11, 2026-11-15T18:30, today or yesterday"


class Length(NamedTuple):
    """So much of a unit."""

    amount: float
    unit: str
    """``s`` for every time; ``ep``, ``st``, ``sa`` for epochs, steps and samples."""


class Period(NamedTuple):
    """The time that a date names, such as a day or a minute, in seconds since 1970."""

    begin: float
    end: float


def read_number(text: str) -> int | float | None:
    """The number that a word spells, an integer as such; None if it is none."""
    if text.casefold() in _SPECIAL:
        return _SPECIAL[text.casefold()]
    if not _NUMBER.fullmatch(text):
        return None
    digits = text.replace("_", "")
    is_integer = digits.lstrip("+-").isdecimal() and len(digits) <= _MAX_DIGITS
    return int(digits) if is_integer else float(digits)


def read_length(text: str) -> Length | None:
    """The length that a word such as ``2h`` or ``10ep`` spells; None if it is none."""
    found = _LENGTH.fullmatch(text)
    if found is None:
        return None
    amount, unit = float(found[1]), found[2]
    return Length(amount * SECONDS[unit], "s") if unit in SECONDS else Length(amount, unit)


def read_period(text: str, now: datetime) -> Period | None:
    """What a date covers on the clock of this place; None if it is no date.

    Args:
        text: A year, month, day, minute or second, or ``today``, ``yesterday``.
        now: What time it is, with its zone.
    """
    try:
        begin, end = _days_ago(text, now) or _named(text) or (None, None)
        if begin is None or end is None:
            return None
        return Period(begin.astimezone().timestamp(), end.astimezone().timestamp())
    except (ValueError, OverflowError, OSError):  # there is no such day
        return None


def _days_ago(text: str, now: datetime) -> tuple[datetime, datetime] | None:
    if text.casefold() not in _DAYS:
        return None
    midnight = now.astimezone().replace(hour=0, minute=0, second=0, microsecond=0, tzinfo=None)
    begin = midnight - timedelta(days=_DAYS[text.casefold()])
    return begin, begin + timedelta(days=1)


def _named(text: str) -> tuple[datetime, datetime] | None:
    found = _DATE.fullmatch(text)
    if found is None:
        return None
    year, month, day, hour, minute, second = (
        None if part is None else int(part) for part in found.groups()
    )
    begin = datetime(  # by the clock of this place
        year or 0, month or 1, day or 1, hour or 0, minute or 0, second or 0
    )
    if month is None:
        return begin, begin.replace(year=begin.year + 1)
    if day is None:
        return begin, (begin + timedelta(days=31)).replace(day=1)
    if hour is None:
        return begin, begin + timedelta(days=1)
    return begin, begin + (timedelta(minutes=1) if second is None else timedelta(seconds=1))
