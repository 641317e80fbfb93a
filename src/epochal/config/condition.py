"""Conditions on a metric: ``val/acc >= 0.95``."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import final

from typing_extensions import override

ACCEPTED = "'val/acc >= 0.95' or 'val/loss <= 0.1'"
_WRITTEN = re.compile(r"([-+]?)\s*([^\s<>=+-][^\s<>=]*)\s*(>=|<=)\s*(\S+)")


@final
@dataclass(frozen=True, slots=True)
class Condition:
    """A value that a metric must reach.

    Args:
        metric: Its full name, such as ``val/acc``.
        sign: ``+`` for at least the value, ``-`` for at most.
        value: The value to reach.
    """

    metric: str
    sign: str
    value: float

    def holds(self, value: float) -> bool:
        """Whether a value of the metric meets the condition; NaN never does."""
        return value >= self.value if self.sign == "+" else value <= self.value

    @override
    def __str__(self) -> str:
        return f"{self.metric} {'>=' if self.sign == '+' else '<='} {self.value:g}"


def parse_condition(text: str | Condition) -> Condition:
    """The condition in a text such as ``val/acc >= 0.95``, with an optional sign in front.

    >>> parse_condition("+val/acc >= 0.95")
    Condition(metric='val/acc', sign='+', value=0.95)
    >>> parse_condition("val/loss <= 0.1").holds(0.2)
    False

    Raises:
        ValueError: The text is not a condition; the message says what is accepted.
    """
    if isinstance(text, Condition):
        return text
    written = _WRITTEN.fullmatch(str(text).strip())
    if written is None:
        meant = re.sub("([<>])(?!=)", r"\1=", str(text), count=1)
        example = repr(meant) if _WRITTEN.fullmatch(meant.strip()) else ACCEPTED
        raise ValueError(f"expected a condition, got {text!r}; write {example}")
    sign, metric, compared, number = written.groups()
    try:
        value = float(number)
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise ValueError(f"{number!r} is not a number to reach; write {ACCEPTED}")
    direction = "+" if compared == ">=" else "-"
    if sign not in ("", direction):
        raise ValueError(f"the sign of {text!r} contradicts {compared!r}; leave out the sign")
    return Condition(metric, direction, value)
