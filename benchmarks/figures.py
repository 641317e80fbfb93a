"""From pairs of segments to medians with confidence intervals, and whether targets are met."""

from __future__ import annotations

import random
import statistics
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

RESAMPLES = 2000
CONFIDENCE = 0.95
MIN_PAIRS = 6
Pair = dict[str, dict[str, float]]
"""``peer`` and ``hand``, each with ``wall`` and ``cpu`` seconds per step, ``loss`` and ``norm``."""


@dataclass(frozen=True)
class Estimate:
    """A median with its 95 % interval; None where there are too few values."""

    value: float
    low: float | None = None
    high: float | None = None

    def verdict(self, target: float) -> str:
        """Whether the whole interval is at most ``target``."""
        if self.low is None or self.high is None:
            return "too few pairs"
        if self.high <= target:
            return "met"
        return "missed" if self.low > target else "open"


def estimate(processes: Sequence[Sequence[float]]) -> Estimate:
    """The median of all values; the interval resamples processes, and the values within them.

    Values of one process are not independent, therefore processes are resampled too.
    """
    values = [value for process in processes for value in process]
    median = statistics.median(values)
    if len(processes) < 2 or len(values) < MIN_PAIRS:
        return Estimate(median)
    draw = random.Random(0).choices
    medians = sorted(
        statistics.median(
            value
            for process in draw(processes, k=len(processes))
            for value in draw(process, k=len(process))
        )
        for _ in range(RESAMPLES)
    )
    cut = round(RESAMPLES * (1 - CONFIDENCE) / 2)
    return Estimate(median, medians[cut], medians[-1 - cut])


def ratio(clock: str) -> Callable[[Pair], float]:
    """The peer's time of a pair relative to the hand-written loop."""
    return lambda pair: pair["peer"][clock] / pair["hand"][clock]


def difference(name: str) -> Callable[[Pair], float]:
    """The excess of the peer over the hand-written loop in a pair."""
    return lambda pair: pair["peer"][name] - pair["hand"][name]


@dataclass(frozen=True, kw_only=True)
class Summary:
    """One row of a table."""

    cpu: Estimate
    wall: Estimate
    added_us: float
    """Microseconds of CPU time per step more than the hand-written loop."""

    step_us: float
    hand_us: float
    """Microseconds of wall-clock time per step, of the peer and of the loop beside it."""

    num_pairs: int
    loss_difference: float
    norm_difference: float
    """The largest differences of loss and norm to the hand-written loop."""


def summarize(runs: Sequence[dict[str, Any]]) -> Summary:
    """All processes of one row, each with its ``pairs``."""
    processes: list[list[Pair]] = [run["pairs"] for run in runs]
    pairs = [pair for process in processes for pair in process]

    def over_processes(figure: Callable[[Pair], float]) -> Estimate:
        return estimate([[figure(pair) for pair in process] for process in processes])

    def microseconds(figure: Callable[[Pair], float]) -> float:
        return 1e6 * statistics.median(figure(pair) for pair in pairs)

    return Summary(
        cpu=over_processes(ratio("cpu")),
        wall=over_processes(ratio("wall")),
        added_us=microseconds(difference("cpu")),
        step_us=microseconds(lambda pair: pair["peer"]["wall"]),
        hand_us=microseconds(lambda pair: pair["hand"]["wall"]),
        num_pairs=len(pairs),
        loss_difference=max(abs(difference("loss")(pair)) for pair in pairs),
        norm_difference=max(abs(difference("norm")(pair)) for pair in pairs),
    )
