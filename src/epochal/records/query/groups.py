"""Groups runs, such as those that differ only by seed, and averages their metrics."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, final

from epochal.records.folder.writer import COMPLETED_STATUSES
from epochal.records.index.replicates import MeanEstimate, estimate_mean, latest_per_seed
from epochal.records.query.names import Fact

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from epochal.records.query.ask import Answer
    from epochal.records.query.names import Target

REPLICATE = Fact("replicate", "replicate")
"""The column that runs share which differ only by seed."""


@final
@dataclass(frozen=True, slots=True)
class RunGroup:
    """Indices of runs in an answer that belong to one group."""

    places: tuple[int, ...]
    counted: tuple[int, ...]
    """The runs that count: they ended, and no later run repeats them."""

    def mean(self, values: Sequence[Any] | Mapping[int, Any]) -> MeanEstimate | None:
        """The mean over the runs that count; None if none has a value, or one is no number."""
        known = [values[place] for place in self.counted if values[place] is not None]
        if not known or not all(_is_number(value) for value in known):
            return None
        return estimate_mean(known)

    def distinct(self, values: Sequence[Any]) -> list[Any]:
        """The distinct values; numbers sorted, others in the order of the runs."""
        if len(self.places) == 1:  # the usual case, done quickly
            return [value for place in self.places if (value := values[place]) is not None]
        found = {repr(values[place]): values[place] for place in self.places}
        known = [value for value in found.values() if value is not None]
        return sorted(known) if all(map(_is_number, known)) else known


def group(answer: Answer, targets: Sequence[Target]) -> list[RunGroup]:
    """Groups of runs with the same values, in the order of their first runs.

    A run without any of the values is a separate group.
    """
    columns = [answer.values(target) for target in targets]
    found: dict[object, list[int]] = {}
    for place in range(len(answer.rows)):
        values = [column[place] for column in columns]
        is_unknown = all(value is None for value in values)
        found.setdefault(place if is_unknown else repr(values), []).append(place)
    is_by_replicate = REPLICATE.column in [getattr(target, "column", "") for target in targets]
    return [
        _make_group(answer, places, is_by_replicate=is_by_replicate) for places in found.values()
    ]


def sort_groups(
    groups: Sequence[RunGroup], values: Sequence[Any], *, is_descending: bool
) -> list[RunGroup]:
    """The groups sorted by the mean of a value, those without a mean last."""
    means = {group: group.mean(values) for group in groups}
    sign = -1 if is_descending else 1
    return sorted(
        groups, key=lambda group: (means[group] is None, sign * (means[group] or _ZERO).mean)
    )


_ZERO = estimate_mean([0.0])


def _make_group(answer: Answer, places: list[int], *, is_by_replicate: bool) -> RunGroup:
    done = [place for place in places if answer.rows[place]["status"] in COMPLETED_STATUSES]
    if is_by_replicate:
        done.sort(key=lambda place: str(answer.rows[place]["started"]))
        done = [done[i] for i in latest_per_seed([answer.rows[place]["seed"] for place in done])]
    return RunGroup(tuple(places), tuple(sorted(done)))


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
