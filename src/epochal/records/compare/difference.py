"""Compares tables of names and values, one for each run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, final


@final
@dataclass(frozen=True, slots=True)
class RunValue:
    """The value of one run under a name."""

    value: Any  # any JSON value
    where: str = ""
    """Who set it; empty for facts."""

    is_default: bool = False


@final
@dataclass(frozen=True, slots=True)
class Difference:
    """One name whose values differ between runs."""

    key: str
    sides: tuple[RunValue | None, ...]
    """One for each run; None where it is missing."""

    @property
    def is_minor(self) -> bool:
        """Whether it is a default that only some runs have, because of another class or version."""
        present = [side for side in self.sides if side is not None]
        return len(present) < len(self.sides) and all(side.is_default for side in present)


ValueTable = Mapping[str, RunValue]


@final
@dataclass(frozen=True, slots=True)
class SectionComparison:
    """The comparison of one section."""

    differences: tuple[Difference, ...]
    """The names that differ, in the order of the runs."""

    num_same: int
    """The number of names with equal values in all runs."""

    unknown: tuple[int, ...] = ()
    """Indices of runs without this section; the others are compared."""


def compare_tables(tables: Sequence[ValueTable | None]) -> SectionComparison:
    """The comparison of one table per run; None for a run without one."""
    known = [table for table in tables if table is not None]
    unknown = tuple(place for place, table in enumerate(tables) if table is None)
    if len(known) < 2:
        return SectionComparison((), 0, unknown)
    found, num_same = [], 0
    for key in dict.fromkeys(key for table in known for key in table):
        if _is_same_everywhere(key, known):
            num_same += 1
        else:
            sides = tuple(None if table is None else table.get(key) for table in tables)
            found.append(Difference(key, sides))
    return SectionComparison(tuple(found), num_same, unknown)


def _is_same_everywhere(key: str, tables: Sequence[ValueTable]) -> bool:
    first, *others = (table.get(key) for table in tables)
    return all(
        first is other or (first and other and is_equal_value(first.value, other.value))
        for other in others
    )


def is_equal_value(one: object, other: object) -> bool:
    """Whether two plain values are equal: 1 is 1.0, NaN is NaN, true is not 1."""
    if isinstance(one, Mapping) and isinstance(other, Mapping):
        return one.keys() == other.keys() and all(
            is_equal_value(one[key], other[key]) for key in one
        )
    if isinstance(one, list | tuple) and isinstance(other, list | tuple):
        return len(one) == len(other) and all(map(is_equal_value, one, other))
    if isinstance(one, float) and isinstance(other, float) and one != one:
        return other != other
    return isinstance(one, bool) == isinstance(other, bool) and one == other
