"""A period in epochs, steps, samples or time, or never."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, final

from typing_extensions import override

from epochal.config.duration import Duration, parse_duration

if TYPE_CHECKING:
    from collections.abc import Sequence


@final
@dataclass(frozen=True, slots=True)
class Every:
    """A period; ``Every.parse("50st")`` is every 50 optimizer steps."""

    amount: float
    """The length of the period in units; 0 is never."""

    unit: str
    """``ep``, ``st``, ``sa`` or ``s``; empty if never."""

    NEVER: ClassVar[Every]

    UNREACHED: ClassVar[Every]
    """Longer than any run, for tools that turn a period off which the config may set."""

    @classmethod
    def parse(cls, value: object) -> Every:
        """The period of ``50st``, ``1ep``, ``1e6sa``, ``10min`` or 0 (never).

        Raises:
            ValueError: The value is invalid; the text says what is accepted.
        """
        if isinstance(value, Every):
            return value
        if value is None or value in (0, "0", ""):
            return cls.NEVER
        if isinstance(value, Duration):
            return cls(value.amount, value.unit)
        if not isinstance(value, str):
            raise ValueError(f"a period needs a unit, got {value!r}; write '{value}st' or 0")
        duration = parse_duration(value)
        return cls(duration.amount, duration.unit)

    @property
    def is_never(self) -> bool:
        """Whether the period is 0 (never)."""
        return not self.amount

    def after(self, position: float) -> float:
        """The first multiple of the amount that is larger than ``position``."""
        if self.is_never:
            return math.inf
        return (position // self.amount + 1) * self.amount

    @override
    def __str__(self) -> str:
        return "never" if self.is_never else str(Duration(self.amount, self.unit))


def join_periods(periods: Sequence[Every]) -> str:
    """``1ep``, or ``1ep or 6min`` if whichever is sooner counts."""
    return " or ".join(map(str, periods))


Every.NEVER = Every(0, "")
Every.UNREACHED = Every(1e9, "ep")
