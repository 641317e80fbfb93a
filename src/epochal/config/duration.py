"""Lengths of training: epochs, steps, samples or time."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import final

from typing_extensions import override

from epochal.config.scalar import shorten

ACCEPTED = "10ep (epochs), 500st (steps), 1e6sa (samples), 2h (time: s, min, h, d)"
_COUNTED = {"ep": "epochs", "st": "steps", "sa": "samples"}
_SECONDS = {"d": 86_400, "h": 3_600, "min": 60, "s": 1}
_MOST = 10**15
_WRITTEN = re.compile(r"([-+]?)(\d[\d_]*(?:\.\d+)?(?:[eE][-+]?\d{1,4})?)\s*([A-Za-z]*)")


@final
@dataclass(frozen=True, slots=True)
class Duration:
    """A number of epochs, steps or samples, or a time.

    Args:
        amount: How many; more than zero, and whole unless it is a time.
        unit: ``ep``, ``st``, ``sa``, or ``s``, ``min``, ``h``, ``d``; times are kept in ``s``.
    """

    amount: int | float
    unit: str

    def __post_init__(self) -> None:
        if self.unit not in _COUNTED and self.unit not in _SECONDS:
            raise ValueError(f"unknown unit {self.unit!r}; write {ACCEPTED}")
        amount: int | float = self.amount * _SECONDS.get(self.unit, 1)
        if isinstance(self.amount, bool) or not math.isfinite(amount) or amount > _MOST:
            raise ValueError(f"cannot last {self.amount!r}{self.unit}; write {ACCEPTED}")
        if amount <= 0:
            raise ValueError(
                f"must be more than zero, got {self.amount}{self.unit}; write {ACCEPTED}"
            )
        if isinstance(amount, float) and amount.is_integer():
            amount = int(amount)
        if self.unit in _COUNTED and not isinstance(amount, int):
            name = _COUNTED[self.unit]
            raise ValueError(
                f"{name} must be whole numbers, got {self.amount}{self.unit}; write {ACCEPTED}"
            )
        object.__setattr__(self, "amount", amount)
        object.__setattr__(self, "unit", self.unit if self.unit in _COUNTED else "s")

    @property
    def is_time(self) -> bool:
        """Whether it is measured by the clock."""
        return self.unit == "s"

    @property
    def seconds(self) -> float:
        """The time in seconds; ValueError for epochs, steps and samples."""
        if not self.is_time:
            raise ValueError(f"{self} is not a time")
        return float(self.amount)

    @override
    def __str__(self) -> str:
        if not self.is_time:
            return f"{self.amount}{self.unit}"
        for unit, seconds in _SECONDS.items():
            if self.amount % seconds == 0:
                return f"{int(self.amount // seconds)}{unit}"
        return f"{self.amount!r}s"


def parse_duration(text: str | Duration) -> Duration:
    """The duration in a text such as ``10ep`` or ``1.5h``.

    >>> parse_duration("1e6sa")
    Duration(amount=1000000, unit='sa')
    >>> str(parse_duration("120min"))
    '2h'

    Raises:
        ValueError: The text is not a duration; the message says what is accepted.
    """
    if isinstance(text, Duration):
        return text
    written = _WRITTEN.fullmatch(str(text).strip())
    if written is None or len(written[2]) > 40:
        shown = shorten(repr(text), 60)
        raise ValueError(f"expected a duration, got {shown}; write {ACCEPTED}")
    sign, digits, unit = written.groups()
    if not unit:
        raise ValueError(f"a duration needs a unit, got {text!r}; write {ACCEPTED}")
    digits = digits.replace("_", "")
    amount: int | float = int(digits) if digits.isdecimal() else float(digits)
    return Duration(-amount if sign == "-" else amount, unit)
