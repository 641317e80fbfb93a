"""When a trial is stopped early because others were better at the same point."""

from __future__ import annotations

import math
from dataclasses import dataclass
from statistics import quantiles
from typing import TYPE_CHECKING, Literal, final

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    Curve = Sequence[float]
    """The values of the objective, one per evaluation."""

PrunerName = Literal["asha", "hyperband", "median", "percentile"]


@final
@dataclass(frozen=True, slots=True)
class Pruner:
    """The rule that stops trials, and its options."""

    type: PrunerName = "asha"
    min_evaluations: int = 1
    """No trial is stopped before it has this many values."""

    factor: int = 3
    """asha and hyperband: one of this many trials goes on at each rung."""

    brackets: int = 3
    """hyperband: number of groups of trials, each with a later first rung than the one before."""

    percentile: float = 50.0
    """percentile: the share of trials, best first, that goes on."""

    min_trials: int = 5
    """median and percentile: number of other trials needed for a comparison."""

    def find_reason(
        self, curve: Curve, others: Mapping[int, Curve], *, number: int, mode: str
    ) -> str:
        """Why a trial with these values is stopped; empty if it goes on.

        Args:
            curve: Its values so far.
            others: The values of all other trials, by number, finished and running ones.
            number: The number of the trial.
            mode: ``min`` or ``max``, which way is better.
        """
        sign = 1.0 if mode == "min" else -1.0
        own = [_worst_if_nan(sign * value) for value in curve]
        rest = {n: [_worst_if_nan(sign * value) for value in one] for n, one in others.items()}
        if self.type in ("asha", "hyperband"):
            return self._find_rung(own, rest, number)
        return self._find_percentile(own, rest)

    def _find_rung(self, own: list[float], others: Mapping[int, list[float]], number: int) -> str:
        """The last rung reached decides; each trial counts with its best value up to the rung."""
        start, group = self.min_evaluations, self.brackets if self.type == "hyperband" else 1
        bracket = number % group
        rung = start * self.factor**bracket
        if len(own) < rung:
            return ""
        while rung * self.factor <= len(own):
            rung *= self.factor
        reached = [
            min(one[:rung])
            for n, one in others.items()
            if n % group == bracket and len(one) >= rung
        ]
        kept = (len(reached) + 1) // self.factor
        if kept < 1:
            return ""
        best = min(own[:rung])
        rank = 1 + sum(value < best for value in reached)
        if rank <= kept:
            return ""
        return f"{self.type}: rank {rank} of {len(reached) + 1} at evaluation {rung}"

    def _find_percentile(self, own: list[float], others: Mapping[int, list[float]]) -> str:
        count = len(own)
        if count < self.min_evaluations:
            return ""
        compared = [min(one[:count]) for one in others.values() if len(one) >= count]
        if len(compared) < max(self.min_trials, 2):
            return ""
        share = 50.0 if self.type == "median" else self.percentile
        finite = [value for value in compared if math.isfinite(value)]
        if len(finite) < 2:
            return ""
        cuts = [min(finite), *quantiles(finite, n=1000, method="inclusive"), max(finite)]
        if min(own) <= cuts[round(share * 10)]:
            return ""
        name = "median" if self.type == "median" else f"best {share:g} %"
        return f"{self.type}: worse than the {name} of {len(compared)} trials at evaluation {count}"


def _worst_if_nan(value: float) -> float:
    return math.inf if math.isnan(value) else value
