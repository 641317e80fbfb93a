"""Runs as columns of plain values: CSV, Parquet and pandas DataFrames."""

from __future__ import annotations

import csv
import io
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, final

from epochal.errors import ConfigError, Problem
from epochal.records.index import Index
from epochal.records.index.sql_schema import MAX_INTEGER
from epochal.records.query.ask import Question, ask, columns_of, is_root, locate
from epochal.records.query.names import Fact, Measure

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pandas as pd  # type: ignore[import-untyped]

    from epochal.records.query.ask import Answer
    from epochal.records.query.groups import RunGroup
    from epochal.records.query.names import Target

_ALWAYS = (
    "run", "project", "tag", "runner", "status", "started", "seconds", "step", "seed", "best"
)  # fmt: skip
_IF_ANY = ("desc", "variant", "reason", "epoch", "attempt", "parent", "parent_kind", "monitor")
_EXTRA = "pip install 'epochal[frame]'"
"""Installs pandas and pyarrow."""


@final
@dataclass(frozen=True, slots=True)
class Sheet:
    """Columns of equal length by their headings."""

    columns: dict[str, list[Any]]

    @property
    def rows(self) -> list[dict[str, Any]]:
        """One mapping per row."""
        lines = zip(*self.columns.values(), strict=True)
        return [dict(zip(self.columns, line, strict=True)) for line in lines]

    def to_csv(self) -> bytes:
        """Comma-separated values with a header."""
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
            hint = f"{_EXTRA}, or use --format csv"
            raise ConfigError(Problem("--format", what, hint=hint)) from error
        table = pa.table({name: pa.array(_uniform(one)) for name, one in self.columns.items()})
        data = io.BytesIO()
        parquet.write_table(table, data)
        return data.getvalue()


def runs(
    where: str = "",
    *,
    sort: str = "",
    columns: str | Sequence[str] = "",
    search: str = "",
    limit: int | None = None,
    root: str | Path = "runs",
) -> pd.DataFrame:
    """The runs below a folder as a DataFrame, one row each, the newest last.

    Args:
        where: Which runs, such as ``optim.lr > 1e-4 and val/acc > 0.9``.
        sort: Names to sort by, such as ``val/acc desc``.
        columns: Names of columns; by default facts, the config keys that differ, and the last
            value of each metric.
        search: Words that README, tag or config must contain.
        limit: The maximum number of runs: the first ones, without ``sort`` the newest.
        root: Folder of all runs.

    Raises:
        ConfigError: A query is invalid, or pandas is not installed.
    """
    try:
        import pandas as pd
    except ImportError as error:
        what = "a DataFrame needs pandas, which is not installed"
        raise ConfigError(Problem("ep.runs", what, hint=_EXTRA)) from error
    asked = columns if isinstance(columns, str) else ", ".join(columns)
    folder, below = locate(Path(root))
    question = Question(
        where=where, sort=sort, columns=asked, search=search, limit=limit, below=below
    )
    with Index.open(folder, is_kept=is_root(folder)) as index:
        index.refresh()
        answer = ask(index, question)
        targets = columns_of(index, question.text("columns"), answer) or default_columns(answer)
        sheet = lay_out(answer, targets)
    times = {one.shown for one in targets if isinstance(one, Fact) and one.kind == "time"}
    return pd.DataFrame(
        {
            name: pd.to_datetime([read_time(value) for value in values], utc=True)
            if name in times
            else values
            for name, values in sheet.columns.items()
        }
    )


def lay_out(answer: Answer, targets: Sequence[Target]) -> Sheet:
    """A sheet with one row per run."""
    return Sheet({target.shown: answer.values(target) for target in targets})


def lay_out_groups(answer: Answer, targets: Sequence[Target], groups: Sequence[RunGroup]) -> Sheet:
    """A sheet with one row per group: the number of runs, their values and means of metrics.

    A mean has two more columns, the ends of its 95 % interval.
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


def join_values(values: Sequence[Any]) -> Any:  # noqa: ANN401 - runs have values of any type
    """The only value, or a text with all of them."""
    if len(values) < 2:
        return values[0] if values else None
    return ", ".join(_as_text(value) for value in values)


def default_columns(answer: Answer) -> list[Target]:
    """Columns that distinguish runs: facts, config keys that differ, and all metrics."""
    optional = [Fact(name, name) for name in _IF_ANY]
    facts = [fact for fact in optional if any(v is not None for v in answer.values(fact))]
    targets = [*(Fact(name, name) for name in _ALWAYS), *facts]
    return [*targets, *answer.changed(), *answer.metrics(), Fact("path", "path")]


def read_time(text: str | None) -> datetime | None:
    """The time that the index stores as a text; None if it is damaged."""
    try:
        return None if text is None else datetime.fromisoformat(text)
    except ValueError:
        return None


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
