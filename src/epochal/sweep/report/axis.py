"""Axes of figures: linear, logarithmic, or one place for each value."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, final

from epochal.sweep.space import ValueRange
from epochal.text.formatting import format_value

if TYPE_CHECKING:
    from collections.abc import Sequence

    from epochal.sweep.space import SweepParameter

_MAX_CHOICES = 12
_MAX_DECADES = 6
_MARGIN = 0.04


@final
@dataclass(frozen=True)
class Axis:
    """Places values between 0 and 1."""

    label: str
    low: float = 0.0
    high: float = 1.0
    is_log: bool = False
    choices: tuple[str, ...] = ()
    """The texts of the values, if each has its own place."""

    def place(self, value: Any) -> float | None:  # noqa: ANN401 - any plain value
        """The place of a value, at an edge if it is beyond; None if it has none."""
        if self.choices:
            text = show_value(value)
            if text not in self.choices:
                return None
            return (self.choices.index(text) + 0.5) / len(self.choices)
        if isinstance(value, bool) or not isinstance(value, int | float):
            return None
        if not math.isfinite(value) or (self.is_log and value <= 0):
            return None
        low, high, here = (self._scale(one) for one in (self.low, self.high, value))
        share = (here - low) / (high - low) if high > low else 0.5
        return min(max(_MARGIN + (1 - 2 * _MARGIN) * share, 0.0), 1.0)

    def _scale(self, value: float) -> float:
        return math.log(value) if self.is_log else float(value)

    def ticks(self) -> list[tuple[float, str]]:
        """Places with their texts."""
        if self.choices:
            size = len(self.choices)
            return [((i + 0.5) / size, text) for i, text in enumerate(self.choices)]
        values = _log_ticks(self.low, self.high) if self.is_log else []
        values = values if len(values) > 1 else _linear_ticks(self.low, self.high)
        places = [(self.place(value), format_value(value)) for value in values]
        return [(place, text) for place, text in places if place is not None]


def axis_of_parameter(parameter: SweepParameter, values: Sequence[Any]) -> Axis:
    """The axis of a parameter that took these values."""
    space = parameter.values
    numbers = [one for one in values if isinstance(one, int | float) and not isinstance(one, bool)]
    texts = sorted({show_value(one) for one in values})
    is_range = isinstance(space, ValueRange)
    if not is_range and (len(numbers) < len(values) or len(texts) <= _MAX_CHOICES):
        ordered = [show_value(one) for one in sorted(set(numbers))] if numbers else []
        if len(numbers) < len(values):
            ordered = texts
        return Axis(parameter.key, choices=tuple(ordered))
    is_log = bool(getattr(space, "is_log", False)) and all(one > 0 for one in numbers)
    ends = [*numbers, *((space.low, space.high) if isinstance(space, ValueRange) else ())]
    return axis_of_numbers(parameter.key, ends, is_log=is_log)


def axis_of_numbers(label: str, values: Sequence[float], *, is_log: bool = False) -> Axis:
    """The axis of numbers."""
    finite = [one for one in values if math.isfinite(one)]
    low, high = min(finite, default=0.0), max(finite, default=1.0)
    if low == high:
        gap = abs(low) * 0.1 or 1.0
        low, high = (low / 2, low * 2) if is_log else (low - gap, high + gap)
    return Axis(label, low, high, is_log)


def _linear_ticks(low: float, high: float) -> list[float]:
    step = 10 ** math.floor(math.log10((high - low) / 3))
    step *= next((one for one in (1, 2, 5) if (high - low) / (step * one) <= 5), 10)
    first = math.ceil(low / step - 1e-9)
    count = math.floor(high / step + 1e-9) - first + 1
    return [float(f"{(first + index) * step:.10g}") for index in range(max(count, 0))]


def _log_ticks(low: float, high: float) -> list[float]:
    first, last = math.ceil(math.log10(low) - 1e-9), math.floor(math.log10(high) + 1e-9)
    every = max(1, math.ceil((last - first) / _MAX_DECADES))
    decades = [10.0**power for power in range(first, last + 1, every)]
    if len(decades) > 2:
        return decades
    parts = [n * 10.0**power for power in range(first - 1, last + 1) for n in (1, 2, 5)]
    return [one for one in parts if low * (1 - 1e-9) <= one <= high * (1 + 1e-9)]


def show_value(value: Any) -> str:  # noqa: ANN401 - any plain value
    """A value in short: ``focal(gamma=2)`` for a component."""
    if isinstance(value, Mapping) and "type" in value:
        arguments = [f"{key}={show_value(one)}" for key, one in value.items() if key != "type"]
        return f"{value['type']}({', '.join(arguments)})" if arguments else str(value["type"])
    if isinstance(value, int | float) and not isinstance(value, bool):
        return format_value(value)
    return value if isinstance(value, str) else json.dumps(value, default=str)


def shorten(text: str, most: int) -> str:
    """The text with at most so many characters."""
    return text if len(text) <= most else f"{text[: most - 1]}…"
