"""The search space of a sweep: the values that each key of the config may take."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass, field, replace
from itertools import accumulate
from statistics import NormalDist
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, final

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from epochal.errors import Place

Values = dict[str, Any]
"""The values of one trial, by dotted key; keys whose condition does not hold are left out."""


@final
@dataclass(frozen=True, slots=True)
class ValueChoice:
    """One of several values."""

    values: tuple[Any, ...]
    weights: tuple[float, ...] = ()
    """Their probabilities, for random search; equal if empty."""

    def at(self, position: float) -> Any:  # noqa: ANN401 - any plain value
        """The value at a position from 0 to below 1."""
        if not self.weights:
            return self.values[min(int(position * len(self.values)), len(self.values) - 1)]
        total = sum(self.weights)
        sums = accumulate(weight / total for weight in self.weights)
        pairs = zip(self.values, sums, strict=True)
        return next((value for value, end in pairs if position < end), self.values[-1])

    def grid(self) -> tuple[Any, ...]:
        """Every value."""
        return self.values

    def bounds(self) -> tuple[Any, ...]:
        """The values that show whether all of them are accepted."""
        return self.values


@final
@dataclass(frozen=True, slots=True)
class ValueRange:
    """A range of numbers, both ends included."""

    low: float
    high: float
    is_log: bool = False
    step: float | None = None
    is_integer: bool = False
    points: int | None = None
    """The number of values for a grid search."""

    def at(self, position: float) -> float:
        """The value at a position from 0 to below 1."""
        if self.is_integer and not self.is_log and self.step is None:
            return min(int(self.low + position * (self.high - self.low + 1)), int(self.high))
        if self.is_log:
            low, high = math.log(self.low), math.log(self.high)
            value = min(max(math.exp(low + position * (high - low)), self.low), self.high)
        elif self.step is not None:
            return self._round(self.low + self.step * int(position * self._num_steps()))
        else:
            value = self.low + position * (self.high - self.low)
        return self._round(value)

    def grid(self) -> tuple[float, ...]:
        """The values of a grid search; empty if the range does not say which."""
        if self.points is not None:
            last = max(self.points - 1, 1)
            whole = replace(self, step=None)
            inner = [whole._at_share(index / last) for index in range(1, last)]
            spots = [self.low, *inner, self.high][: self.points]
            return tuple(dict.fromkeys(whole._round(value) for value in spots))
        if self.step is not None or (self.is_integer and not self.is_log):
            step = self.step or 1
            return tuple(self._round(self.low + step * n) for n in range(self._num_steps()))
        return ()

    def _at_share(self, share: float) -> float:
        """The value at a share of the way from the lower to the upper end."""
        if self.is_log:
            low, high = math.log(self.low), math.log(self.high)
            return math.exp(low + share * (high - low))
        return self.low + share * (self.high - self.low)

    def bounds(self) -> tuple[float, ...]:
        """The values that show whether all of them are accepted."""
        return (self._round(self.low), self._round(self.high))

    def _num_steps(self) -> int:
        return int((self.high - self.low) / (self.step or 1) + 1e-9) + 1

    def _round(self, value: float) -> float:
        if self.is_integer:
            return round(value)
        # 0.1 + 0.2 is shown as 0.3, as a user would write it.
        return value if self.step is None else float(f"{value:.12g}")


@final
@dataclass(frozen=True, slots=True)
class NormalRange:
    """Numbers around a mean; for ``is_log``, the logarithm is normally distributed."""

    mean: float
    deviation: float
    is_log: bool = False
    step: float | None = None

    def at(self, position: float) -> float:
        """The value at a quantile from 0 to below 1."""
        quantile = min(max(position, 1e-9), 1 - 1e-9)
        value = NormalDist(self.mean, self.deviation).inv_cdf(quantile)
        value = math.exp(value) if self.is_log else value
        return value if self.step is None else float(f"{round(value / self.step) * self.step:.12g}")

    def find_position(self, value: float) -> float:
        """The quantile of a value."""
        plain = math.log(value) if self.is_log else value
        return NormalDist(self.mean, self.deviation).cdf(plain)

    def grid(self) -> tuple[float, ...]:
        """Empty: no finite set of values."""
        return ()

    def bounds(self) -> tuple[float, ...]:
        """Values three deviations below and above the mean."""
        return (self.at(0.00135), self.at(0.99865))


Distribution = ValueChoice | ValueRange | NormalRange


@final
@dataclass(frozen=True, slots=True)
class SweepParameter:
    """One key of the config that a sweep sets."""

    key: str
    values: Distribution
    when: Mapping[str, tuple[Any, ...]] = field(default_factory=lambda: MappingProxyType({}))
    """It is set only in trials in which these keys have one of these values."""

    place: Place | None = None

    def is_active(self, values: Mapping[str, Any], fixed: Mapping[str, Any]) -> bool:
        """Whether a trial with these values sets it; ``fixed`` are values of the config."""
        return all(
            values.get(key, fixed.get(key)) in accepted for key, accepted in self.when.items()
        )


@final
@dataclass(frozen=True)
class Space:
    """All parameters of a sweep, those of conditions first."""

    parameters: tuple[SweepParameter, ...] = ()
    fixed: Mapping[str, Any] = field(default_factory=lambda: MappingProxyType({}))
    """Values of the config that conditions read."""

    def at(self, positions: Sequence[float]) -> Values:
        """The values at a position from 0 to below 1 for each parameter."""
        values: Values = {}
        for parameter, position in zip(self.parameters, positions, strict=True):
            if parameter.is_active(values, self.fixed):
                values[parameter.key] = parameter.values.at(position)
        return values

    def iter_grid(self) -> Iterator[Values]:
        """Every combination of the values, each once."""
        yield from self._iter_grid({}, 0)

    def _iter_grid(self, values: Values, index: int) -> Iterator[Values]:
        if index == len(self.parameters):
            yield dict(values)
            return
        parameter = self.parameters[index]
        if not parameter.is_active(values, self.fixed):
            yield from self._iter_grid(values, index + 1)
            return
        for value in parameter.values.grid():
            yield from self._iter_grid(values | {parameter.key: value}, index + 1)

    def iter_probes(self) -> Iterator[tuple[SweepParameter, Values]]:
        """Trials that together use every choice and both ends of every range.

        One parameter changes at a time; its conditions are made to hold.
        """
        first = {one.key: one.values.bounds()[0] for one in self.parameters}
        by_key = {one.key: one for one in self.parameters}
        for parameter in self.parameters:
            for value in parameter.values.bounds():
                wanted = first | _conditions_of(parameter, by_key) | {parameter.key: value}
                values: Values = {}
                for one in self.parameters:
                    if one.is_active(values, self.fixed):
                        values[one.key] = wanted[one.key]
                if parameter.key in values:
                    yield parameter, values


def _conditions_of(parameter: SweepParameter, by_key: Mapping[str, SweepParameter]) -> Values:
    wanted: Values = {}
    for key, accepted in parameter.when.items():
        if key in by_key:
            wanted |= _conditions_of(by_key[key], by_key) | {key: accepted[0]}
    return wanted


def identify(values: Mapping[str, Any]) -> str:
    """A text that is equal for equal values."""
    return json.dumps(values, sort_keys=True, default=str)
