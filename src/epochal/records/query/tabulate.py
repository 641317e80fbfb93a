"""Tables of runs: one row per run, or per group such as replicates, with means of metrics."""

from __future__ import annotations

import csv
import io
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, final

from epochal.errors import ConfigError, Problem
from epochal.records.index.index_database import MAX_INTEGER
from epochal.records.index.replicates import MeanEstimate, estimate_mean, latest_per_seed
from epochal.records.layout.run_status import COMPLETED_STATUSES
from epochal.records.query.resolve_names import Fact, Measure
from epochal.records.query.syntax import read_time
from epochal.text.escape import escape_control

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    import pandas as pd  # type: ignore[import-untyped]

    from epochal.records.query.query_runs import QueryResult
    from epochal.records.query.resolve_names import Target

_FORMULA = re.compile(r"[=@\t\r]|[+-][^\n]*[(|!]")
"""Texts that spreadsheets may execute; not monitors such as ``-val/loss``."""

REPLICATE = Fact("replicate", "replicate")
"""The column with the same value in runs that differ only by seed."""


@final
@dataclass(frozen=True, slots=True)
class RunGroup:
    """The runs of one group, as indices into a query result."""

    places: tuple[int, ...]
    counted: tuple[int, ...]
    """The runs that count: they ended, and no later run repeats them."""

    def mean(self, values: Sequence[Any] | Mapping[int, Any]) -> MeanEstimate | None:
        """The mean over the runs that count; None if none has a value, or one is not a number."""
        known = [values[place] for place in self.counted if values[place] is not None]
        if not known or not all(_is_number(value) for value in known):
            return None
        return estimate_mean(known)

    def distinct(self, values: Sequence[Any]) -> list[Any]:
        """The distinct values; numbers sorted, others in the order of the runs."""
        if len(self.places) == 1:  # fast path
            return [value for place in self.places if (value := values[place]) is not None]
        found = {repr(values[place]): values[place] for place in self.places}
        known = [value for value in found.values() if value is not None]
        return sorted(known) if all(map(_is_number, known)) else known


def group(result: QueryResult, targets: Sequence[Target]) -> list[RunGroup]:
    """Groups of runs with the same values, in the order of their first runs.

    A run without any of the values is a separate group.
    """
    columns = [result.values(target) for target in targets]
    found: dict[object, list[int]] = {}
    for place in range(len(result.rows)):
        values = [column[place] for column in columns]
        is_unknown = all(value is None for value in values)
        found.setdefault(place if is_unknown else repr(values), []).append(place)
    is_by_replicate = REPLICATE.column in [getattr(target, "column", "") for target in targets]
    return [
        _make_group(result, places, is_by_replicate=is_by_replicate) for places in found.values()
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


def _make_group(result: QueryResult, places: list[int], *, is_by_replicate: bool) -> RunGroup:
    done = [place for place in places if result.rows[place]["status"] in COMPLETED_STATUSES]
    if is_by_replicate:
        done.sort(key=lambda place: str(result.rows[place]["started"]))
        done = [done[i] for i in latest_per_seed([result.rows[place]["seed"] for place in done])]
    return RunGroup(tuple(places), tuple(sorted(done)))


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


_ALWAYS = (
    "run", "project", "tag", "runner", "status", "started", "seconds", "step", "seed", "best"
)  # fmt: skip
_IF_ANY = (
    "label",
    "desc",
    "variant",
    "fast",
    "reason",
    "epoch",
    "attempt",
    "parent",
    "parent_kind",
    "monitor",
)
_EXTRA = "pip install 'epochal[frame]'"
"""Installs pandas and pyarrow."""


@final
@dataclass(frozen=True, slots=True)
class ExportTable:
    """Columns of equal length by their headings."""

    columns: dict[str, list[Any]]
    times: tuple[str, ...] = ()
    """The columns of dates, as ISO-8601 texts."""

    @property
    def rows(self) -> list[dict[str, Any]]:
        """One mapping per row."""
        lines = zip(*self.columns.values(), strict=True)
        return [dict(zip(self.columns, line, strict=True)) for line in lines]

    def to_csv(self) -> bytes:
        """Comma-separated values with a header, safe for terminals and spreadsheets."""
        return encode_csv([[*self.columns], *zip(*self.columns.values(), strict=True)]).encode()

    def to_parquet(self) -> bytes:
        """A Parquet file; ConfigError without pyarrow."""
        try:
            import pyarrow as pa  # type: ignore[import-untyped]
            from pyarrow import parquet
        except ImportError as error:
            what = "a Parquet file needs pyarrow, which is not installed"
            hint = f"{_EXTRA}, or use --format csv"
            raise ConfigError(Problem("--format", what, hint=hint)) from error
        table = pa.table({name: pa.array(_uniform(one)) for name, one in self.columns.items()})
        data = io.BytesIO()
        parquet.write_table(table, data)
        return data.getvalue()

    def to_pandas(self) -> pd.DataFrame:
        """A DataFrame with times as timestamps; ConfigError without pandas."""
        try:
            import pandas as pd
        except ImportError as error:
            what = "a DataFrame needs pandas, which is not installed"
            raise ConfigError(Problem("to_pandas", what, hint=_EXTRA)) from error
        times = {
            name: pd.to_datetime([read_time(value) for value in self.columns[name]], utc=True)
            for name in self.times
        }
        return pd.DataFrame({**self.columns, **times})


def tabulate_runs(result: QueryResult, targets: Sequence[Target]) -> ExportTable:
    """A table with one row per run."""
    times = (one.shown for one in targets if isinstance(one, Fact) and one.kind == "time")
    return ExportTable({target.shown: result.values(target) for target in targets}, tuple(times))


def tabulate_groups(
    result: QueryResult, targets: Sequence[Target], groups: Sequence[RunGroup]
) -> ExportTable:
    """A table with one row per group: the number of runs, their values and means of metrics.

    A mean has two more columns, the ends of its 95 % interval.
    """
    columns: dict[str, list[Any]] = {
        "runs": [len(group.places) for group in groups],
        "counted": [len(group.counted) for group in groups],
    }
    for target in targets:
        values = result.values(target)
        if isinstance(target, Measure) or target == Fact("best", "best"):
            means = [group.mean(values) for group in groups]
            columns[target.shown] = [one and one.mean for one in means]
            columns[f"{target.shown} low"] = [one and one.low for one in means]
            columns[f"{target.shown} high"] = [one and one.high for one in means]
        else:
            columns[target.shown] = [join_values(group.distinct(values)) for group in groups]
    return ExportTable(columns)


def encode_csv(rows: Iterable[Iterable[object]]) -> str:
    """Comma-separated values, safe for terminals and spreadsheets."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerows(map(_as_cell, row) for row in rows)
    return text.getvalue()


def join_values(values: Sequence[Any]) -> Any:  # noqa: ANN401 - runs have values of any type
    """The only value, or a text with all of them."""
    if len(values) < 2:
        return values[0] if values else None
    return ", ".join(_as_text(value) for value in values)


def default_columns(result: QueryResult) -> list[Target]:
    """Columns that distinguish runs: facts, config keys that differ, and all metrics."""
    optional = [Fact(name, name) for name in _IF_ANY]
    facts = [fact for fact in optional if any(v is not None for v in result.values(fact))]
    targets = [*(Fact(name, name) for name in _ALWAYS), *facts]
    return [*targets, *result.changed(), *result.metrics(), Fact("path", "path")]


def _as_cell(value: object) -> str:
    """A value in CSV: control characters are escaped, and formulas begin with an apostrophe."""
    text = _as_text(value)
    if not isinstance(value, str):
        return text
    return escape_control(f"'{text}" if _FORMULA.match(text) else text)


def _as_text(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return "" if value is None else str(value)


def _uniform(values: list[Any]) -> list[Any]:
    """The values if one type fits all of them, else their texts."""
    kinds = {type(value) for value in values if value is not None}
    is_large = any(isinstance(value, int) and abs(value) > MAX_INTEGER for value in values)
    if len(kinds) < 2 and not is_large:
        return values
    convert = float if kinds == {int, float} else _as_text
    return [None if value is None else convert(value) for value in values]
