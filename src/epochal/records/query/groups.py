"""Groups of runs, such as those that differ only by seed, with the mean of their figures."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, final

from epochal.records.query.names import Fact
from epochal.records.replicates import Mean, last_of_each, summarise
from epochal.records.writer import DONE

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from epochal.records.query.ask import Answer
    from epochal.records.query.names import Target

REPLICATE = Fact("replicate", "replicate")
"""What runs share that differ only by seed."""


@final
@dataclass(frozen=True, slots=True)
class Group:
    """Runs that belong together, by their places in an answer."""

    places: tuple[int, ...]
    counted: tuple[int, ...]
    """Those whose figures count: they came to their end, and no later one says the same again."""

    def mean(self, values: Sequence[Any] | Mapping[int, Any]) -> Mean | None:
        """The mean of a figure, by place; None if no run that counts has it, or it is no number."""
        known = [values[place] for place in self.counted if values[place] is not None]
        if not known or not all(_is_number(value) for value in known):
            return None
        return summarise(known)

    def distinct(self, values: Sequence[Any]) -> list[Any]:
        """What its runs have, each once; numbers by size, the rest in the order of the runs."""
        if len(self.places) == 1:  # as most are that have no replicates
            return [value for place in self.places if (value := values[place]) is not None]
        found = {repr(values[place]): values[place] for place in self.places}
        known = [value for value in found.values() if value is not None]
        return sorted(known) if all(map(_is_number, known)) else known


def group(answer: Answer, targets: Sequence[Target]) -> list[Group]:
    """The runs that have the same values, in the order of the first of each group.

    A run of which the values are not known is a group of its own.
    """
    columns = [answer.values(target) for target in targets]
    found: dict[object, list[int]] = {}
    for place in range(len(answer.rows)):
        values = [column[place] for column in columns]
        is_unknown = all(value is None for value in values)
        found.setdefault(place if is_unknown else repr(values), []).append(place)
    is_by_replicate = REPLICATE.column in [getattr(target, "column", "") for target in targets]
    return [_make(answer, places, is_by_replicate=is_by_replicate) for places in found.values()]


def sort_groups(
    groups: Sequence[Group], values: Sequence[Any], *, is_descending: bool
) -> list[Group]:
    """The groups by the mean of a figure, those without it last."""
    means = {group: group.mean(values) for group in groups}
    sign = -1 if is_descending else 1
    return sorted(
        groups, key=lambda group: (means[group] is None, sign * (means[group] or _ZERO).mean)
    )


_ZERO = summarise([0.0])


def _make(answer: Answer, places: list[int], *, is_by_replicate: bool) -> Group:
    done = [place for place in places if answer.rows[place]["status"] in DONE]
    if is_by_replicate:
        done.sort(key=lambda place: str(answer.rows[place]["started"]))
        done = [done[i] for i in last_of_each([answer.rows[place]["seed"] for place in done])]
    return Group(tuple(places), tuple(sorted(done)))


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
