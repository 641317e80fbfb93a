"""Runs as a table of pandas, for notebooks."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from epochal.errors import ConfigError, Problem
from epochal.records.index import Index
from epochal.records.query.ask import Question, ask, columns_of, is_root, locate
from epochal.records.query.names import Fact
from epochal.records.query.sheet import EXTRA, default_columns, lay_out, read_time

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pandas as pd  # type: ignore[import-untyped]


def runs(
    where: str = "",
    *,
    sort: str = "",
    columns: str | Sequence[str] = "",
    search: str = "",
    limit: int | None = None,
    root: str | Path = "runs",
) -> pd.DataFrame:
    """The runs below a folder as a DataFrame, one line each, the newest last.

    Args:
        where: Which runs, such as ``optim.lr > 1e-4 and val/acc > 0.9``.
        sort: Names to sort by, such as ``val/acc desc``.
        columns: What to show of each run; by default facts, the keys of the config that differ,
            and the last value of every metric.
        search: Words that README, tag or config must have.
        limit: Only the first so many; without ``sort`` the newest.
        root: Folder of all runs.

    Raises:
        ConfigError: A question cannot be understood, or pandas is not installed.
    """
    try:
        import pandas as pd
    except ImportError as error:
        what = "a DataFrame needs pandas, which is not installed"
        raise ConfigError(Problem("ep.runs", what, hint=EXTRA)) from error
    asked = columns if isinstance(columns, str) else ", ".join(columns)
    folder, below = locate(Path(root))
    question = Question(
        where=where, sort=sort, columns=asked, search=search, limit=limit, below=below
    )
    with Index.open(folder, is_kept=is_root(folder)) as index:
        index.refresh()
        answer = ask(index, question)
        targets = columns_of(index, question.written("columns"), answer) or default_columns(answer)
        sheet = lay_out(answer, targets)
    moments = {one.shown for one in targets if isinstance(one, Fact) and one.kind == "time"}
    return pd.DataFrame(
        {
            name: _to_moments(values) if name in moments else values
            for name, values in sheet.columns.items()
        }
    )


def _to_moments(values: list[Any]) -> pd.DatetimeIndex:
    import pandas as pd

    return pd.to_datetime([read_time(value) for value in values], utc=True)
