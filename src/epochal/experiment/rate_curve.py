"""From losses at growing learning rates to the one to train with."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, final

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

# As shares of all steps:
_WIDTH = 0.03  # of the bell over which losses are averaged
_REACH = 0.04  # of a slope, to both sides
_START = 0.1  # in which rates are too small to change anything, so that noise alone is steep
_MOMENTUM = 0.8  # of the mean that decides when to stop, since the future is not known then
_MIN_POINTS = 5
_NOISE = 2.0  # how many times its noise a loss must fall to be called falling
TOO_HIGH = 4.0
"""At how many times the least loss so far a test ends."""


@final
@dataclass(frozen=True)
class Advice:
    """Learning rates to choose from, as places of the curve."""

    steepest: int | None
    """Where the loss falls fastest; None if it never falls."""

    least: int
    """Where it is least."""

    smoothed: tuple[float, ...]


def advise(losses: Sequence[float]) -> Advice:
    """Where the loss of steps with growing rates falls fastest, and where it is least."""
    smoothed = smooth(losses)
    count = len(smoothed)
    first, reach = round(_START * count), max(1, round(_REACH * count))
    least = min(range(count), key=smoothed.__getitem__, default=0)
    # Beyond the least loss it explodes, which is no noise.
    jumps = [losses[one + 1] - losses[one] for one in range(least)]
    noise = _deviation(jumps) / math.sqrt(2)
    start = sum(losses[: count // 4]) / max(1, count // 4)
    if least <= first or start - smoothed[least] <= _NOISE * noise:
        return Advice(None, least, smoothed)

    def slope(index: int) -> float:
        before, after = max(0, index - reach), min(count - 1, index + reach)
        return (smoothed[after] - smoothed[before]) / (after - before)

    steepest = min(range(first, least + 1), key=slope)
    return Advice(steepest, least, smoothed)


def smooth(losses: Sequence[float]) -> tuple[float, ...]:
    """Each loss averaged with those around it, nearer ones more, so that nothing is moved."""
    if not losses:
        return ()
    width = max(1.0, _WIDTH * len(losses))
    reach = math.ceil(3 * width)
    bell = np.exp(-0.5 * (np.arange(-reach, reach + 1) / width) ** 2)
    inside = slice(reach, reach + len(losses))
    sums = np.convolve(np.asarray(losses, np.float64), bell)[inside]
    shares = np.convolve(np.ones(len(losses)), bell)[inside]  # at the ends a part of the bell
    return tuple((sums / shares).tolist())


@final
class Ending:
    """Hears one loss after the other, and knows when the test is over."""

    def __init__(self) -> None:
        self._mean, self._weight, self._count = 0.0, 0.0, 0
        self._least = math.inf

    def hear(self, loss: float) -> str:
        """Why the test is over with this loss; empty while it goes on."""
        if not math.isfinite(loss):
            return "the loss is not finite any more"
        self._count += 1
        self._mean = _MOMENTUM * self._mean + (1 - _MOMENTUM) * loss
        self._weight = _MOMENTUM * self._weight + (1 - _MOMENTUM)
        mean = self._mean / self._weight
        self._least = min(self._least, mean)
        # For losses below zero too, of which four times the least would be less.
        is_high = mean > self._least + (TOO_HIGH - 1) * abs(self._least)
        return f"the loss is {TOO_HIGH:g} times the least" if is_high and self._is_settled else ""

    @property
    def _is_settled(self) -> bool:
        return self._count > _MIN_POINTS


def _deviation(values: Sequence[float]) -> float:
    return math.sqrt(sum(one * one for one in values) / len(values)) if values else 0.0
