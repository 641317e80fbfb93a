"""Runs as columns of plain values, for other programs."""

from __future__ import annotations

import csv
import io
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any, final

from epochal.errors import ConfigError, Problem
from epochal.records.index.schema import MAX_INTEGER
from epochal.records.query.names import Fact, Measure

if TYPE_CHECKING:
    from collections.abc import Sequence

    from epochal.records.query.ask import Answer
    from epochal.records.query.groups import Group
    from epochal.records.query.names import Target

_ALWAYS = (
    "run",
    "project",
    "tag",
    "runner",
    "status",
    "started",
    "seconds",
    "step",
    "seed",
    "best",
)
_IF_ANY = ("desc", "variant", "reason", "epoch", "attempt", "parent", "parent_kind", "monitor")
EXTRA = "pip install 'epochal[frame]'"
"""What brings the packages for tables."""


@final
@dataclass(frozen=True, slots=True)
class Sheet:
    """Columns by their headings; all of one length."""

    columns: dict[str, list[Any]]

    @property
    def rows(self) -> list[dict[str, Any]]:
        """The same, one mapping per line."""
        lines = zip(*self.columns.values(), strict=True)
        return [dict(zip(self.columns, line, strict=True)) for line in lines]

    def to_csv(self) -> bytes:
        """Comma-separated values under a line of headings."""
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow(self.columns)
        for line in zip(*self.columns.values(), strict=True):
            writer.writerow([_as_text(value) for value in line])
        return text.getvalue().encode()

    def to_parquet(self) -> bytes:
        """A Parquet file.

        Raises:
            ConfigError: pyarrow is not installed.
        """
        try:
            import pyarrow as pa  # type: ignore[import-untyped]
            from pyarrow import parquet
        except ImportError as error:
            what = "a Parquet file needs pyarrow, which is not installed"
            hint = f"{EXTRA}, or use --format csv"
            raise ConfigError(Problem("--format", what, hint=hint)) from error
        table = pa.table({name: pa.array(_uniform(one)) for name, one in self.columns.items()})
        data = io.BytesIO()
        parquet.write_table(table, data)
        return data.getvalue()


def lay_out(answer: Answer, targets: Sequence[Target]) -> Sheet:
    """One line per run."""
    return Sheet({target.shown: answer.values(target) for target in targets})


def lay_out_groups(answer: Answer, targets: Sequence[Target], groups: Sequence[Group]) -> Sheet:
    """One line per group: how many runs, and what they have in common or have on average.

    A figure has two more columns, where its 95 % interval begins and ends.
    """
    columns: dict[str, list[Any]] = {
        "runs": [len(group.places) for group in groups],
        "counted": [len(group.counted) for group in groups],
    }
    for target in targets:
        values = answer.values(target)
        if isinstance(target, Measure) or target == Fact("best", "best"):
            means = [group.mean(values) for group in groups]
            columns[target.shown] = [one and one.mean for one in means]
            columns[f"{target.shown} low"] = [one and one.low for one in means]
            columns[f"{target.shown} high"] = [one and one.high for one in means]
        else:
            columns[target.shown] = [join_values(group.distinct(values)) for group in groups]
    return Sheet(columns)


def join_values(values: Sequence[Any]) -> Any:  # noqa: ANN401 - whatever the runs have
    """The value that all have, or all of them as a text."""
    if len(values) < 2:
        return values[0] if values else None
    return ", ".join(_as_text(value) for value in values)


def default_columns(answer: Answer) -> list[Target]:
    """What tells runs apart: facts, the keys of the config that differ, and every metric."""
    optional = [Fact(name, name) for name in _IF_ANY]
    facts = [fact for fact in optional if any(v is not None for v in answer.values(fact))]
    targets = [*(Fact(name, name) for name in _ALWAYS), *facts]
    return [*targets, *answer.changed(), *answer.metrics(), Fact("path", "path")]


def read_time(text: str | None) -> datetime | None:
    """The moment that the index keeps as a text."""
    try:
        return None if text is None else datetime.fromisoformat(text)
    except ValueError:  # the record is damaged
        return None


def _as_text(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return "" if value is None else str(value)


def _uniform(values: list[Any]) -> list[Any]:
    """The values if one type can hold them, else their texts."""
    kinds = {type(value) for value in values if value is not None}
    is_large = any(isinstance(value, int) and abs(value) > MAX_INTEGER for value in values)
    if len(kinds) < 2 and not is_large:
        return values
    convert = float if kinds == {int, float} else _as_text
    return [None if value is None else convert(value) for value in values]
