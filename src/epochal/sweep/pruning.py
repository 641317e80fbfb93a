"""When a trial is stopped early because others were better at the same point."""

from __future__ import annotations

import math
from bisect import bisect_left, insort
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
    """asha and hyperband: one of this many trials continues at each rung."""

    brackets: int = 3
    """hyperband: number of groups of trials, each with a later first rung than the one before."""

    percentile: float = 50.0
    """percentile: the share of trials, best first, that continues."""

    min_trials: int = 5
    """median and percentile: number of other trials needed for a comparison."""

    def find_reason(
        self,
        curve: Curve,
        others: Mapping[int, Curve],
        *,
        number: int,
        mode: str,
        ended: EndedCurves | None = None,
    ) -> str:
        """Why a trial with these values is stopped; empty if it continues.

        Args:
            curve: Its values so far.
            others: The values of other trials, by number, finished and running ones.
            number: The number of the trial.
            mode: ``min`` or ``max``, which way is better.
            ended: The values of still others, which do not change any more.
        """
        compared = _Compared(others, ended or EndedCurves(), 1.0 if mode == "min" else -1.0)
        if self.type in ("asha", "hyperband"):
            return self._find_rung(curve, compared, number)
        return self._find_percentile(curve, compared)

    def _find_rung(self, own: Curve, compared: _Compared, number: int) -> str:
        """The last rung reached decides; each trial counts with its best value up to the rung."""
        start, group = self.min_evaluations, self.brackets if self.type == "hyperband" else 1
        bracket = number % group
        rung = start * self.factor**bracket
        if len(own) < rung:
            return ""
        while rung * self.factor <= len(own):
            rung *= self.factor
        running, ended = compared.find_best(rung, group, bracket)
        total = len(running) + len(ended) + 1
        kept = total // self.factor
        if kept < 1:
            return ""
        best = _best_of(own, rung, compared.sign)
        rank = 1 + sum(value < best for value in running) + bisect_left(ended, best)
        if rank <= kept:
            return ""
        return f"{self.type}: rank {rank} of {total} at evaluation {rung}"

    def _find_percentile(self, own: Curve, compared: _Compared) -> str:
        count = len(own)
        if count < self.min_evaluations:
            return ""
        running, ended = compared.find_best(count)
        total = len(running) + len(ended)
        if total < max(self.min_trials, 2):
            return ""
        share = 50.0 if self.type == "median" else self.percentile
        finite = [value for value in (*ended, *running) if math.isfinite(value)]
        if len(finite) < 2:
            return ""
        cuts = [min(finite), *quantiles(finite, n=1000, method="inclusive"), max(finite)]
        if _best_of(own, count, compared.sign) <= cuts[round(share * 10)]:
            return ""
        name = "median" if self.type == "median" else f"best {share:g} %"
        return f"{self.type}: worse than the {name} of {total} trials at evaluation {count}"


@final
class EndedCurves:
    """The curves of trials that have ended: what they are compared by is computed once."""

    def __init__(self) -> None:
        self._curves: list[tuple[int, Curve]] = []
        self._best: dict[tuple[float, int, int, int], tuple[int, list[float]]] = {}

    def add(self, number: int, curve: Curve) -> None:
        """Add the values of a trial."""
        self._curves.append((number, curve))

    def find_best(self, count: int, sign: float, group: int, bracket: int) -> Sequence[float]:
        """The best value of each up to evaluation ``count``, best first, for one bracket."""
        key = (sign, count, group, bracket)
        num_seen, best = self._best.get(key, (0, []))
        for number, curve in self._curves[num_seen:]:
            if number % group == bracket and len(curve) >= count:
                insort(best, _best_of(curve, count, sign))
        self._best[key] = (len(self._curves), best)
        return best


@final
@dataclass(frozen=True)
class _Compared:
    """The trials that one is compared with; ``sign`` makes smaller values better."""

    running: Mapping[int, Curve]
    ended: EndedCurves
    sign: float

    def find_best(
        self, count: int, group: int = 1, bracket: int = 0
    ) -> tuple[Sequence[float], Sequence[float]]:
        """The best values up to evaluation ``count``, and those of ended trials, best first."""
        running = [
            _best_of(curve, count, self.sign)
            for number, curve in self.running.items()
            if number % group == bracket and len(curve) >= count
        ]
        return running, self.ended.find_best(count, self.sign, group, bracket)


def _best_of(curve: Curve, count: int, sign: float) -> float:
    """The best of the first values; NaN is worse than any."""
    return min(math.inf if math.isnan(one) else sign * one for one in curve[:count])
