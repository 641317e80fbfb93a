"""How important each parameter is: the share of the variance that it explains alone.

The trials are put into groups of similar values of one parameter, and the share is the variance
between the groups over that of all trials, less what chance alone would give (epsilon squared).
The variance is that of the ranks of the trials, so that a few very bad trials do not decide. The
shares of all parameters need not add up to 1: what matters only in combination belongs to none.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from epochal.sweep.space import identify

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

MIN_TRIALS = 4
_MAX_GROUPS = 8


def measure_importance(
    keys: Sequence[str], trials: Sequence[tuple[Mapping[str, Any], float]]
) -> dict[str, float]:
    """The share from 0 to 1 of each parameter, largest first; empty for too few trials.

    Args:
        keys: The parameters.
        trials: The values and the objective of each finished trial.
    """
    known = [(values, objective) for values, objective in trials if math.isfinite(objective)]
    if len(known) < MIN_TRIALS:
        return {}
    ranks = _rank([objective for _, objective in known])
    shares = {
        key: _explain(_group([values.get(key) for values, _ in known]), ranks) for key in keys
    }
    return dict(sorted(shares.items(), key=lambda pair: -pair[1]))


def _rank(values: Sequence[float]) -> list[float]:
    """The place of each value; equal values share the mean of theirs."""
    order = sorted(range(len(values)), key=values.__getitem__)
    ranks = [0.0] * len(values)
    start = 0
    while start < len(order):
        end = start
        while end < len(order) and values[order[end]] == values[order[start]]:
            end += 1
        for place in order[start:end]:
            ranks[place] = (start + end - 1) / 2
        start = end
    return ranks


def _group(values: Sequence[Any]) -> list[int]:
    """The group of each value: equal ones, or quantiles of numbers; a missing one is its own."""
    texts = [identify({"": value}) for value in values]
    names = {text: number for number, text in enumerate(dict.fromkeys(texts))}
    most = max(2, min(_MAX_GROUPS, round(math.sqrt(len(values)))))
    numbers = [value for value in values if value is not None]
    if len(names) <= most or not all(isinstance(one, int | float) for one in numbers):
        return [names[text] for text in texts]
    ranks = iter(_rank([float(one) for one in numbers]))
    size = len(numbers)
    return [-1 if value is None else int(next(ranks) * most / size) for value in values]


def _explain(groups: Sequence[int], values: Sequence[float]) -> float:
    mean = math.fsum(values) / len(values)
    total = math.fsum((value - mean) ** 2 for value in values)
    members: dict[int, list[float]] = {}
    for group, value in zip(groups, values, strict=True):
        members.setdefault(group, []).append(value)
    free = len(values) - len(members)
    if total == 0 or free <= 0:
        return 0.0
    within = math.fsum(
        (value - math.fsum(one) / len(one)) ** 2 for one in members.values() for value in one
    )
    return max(0.0, 1.0 - within / total * (len(values) - 1) / free)
