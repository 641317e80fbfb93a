"""``ep.runs``: the runs below a folder as a table, for notebooks and scripts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, final, overload

from typing_extensions import override

from epochal.cli.draw.progress import Progress
from epochal.cli.pages.run_table import describe_no_runs, fit_columns, list_columns, list_runs
from epochal.records.folder.reader import RunRecord, read_folder
from epochal.records.index import Index
from epochal.records.query.query_runs import (
    RunQuery,
    columns_of,
    is_root,
    locate,
    names_in,
    query_runs,
)
from epochal.records.query.tabulate import default_columns, tabulate_runs
from epochal.registry.project_file import get_runs_dir
from epochal.text.html_output import format_html_table, link_to_run, to_html

if TYPE_CHECKING:
    from pathlib import Path

    import pandas as pd  # type: ignore[import-untyped]

    from epochal.records.query.tabulate import ExportTable


@final
class RunTable(Sequence[RunRecord]):
    """A table of runs; its items are their records, which are read when they are used.

    Printed, it is the table of ``epochal runs``; a notebook shows it with links to the folders.
    """

    def __init__(
        self,
        paths: Sequence[Path],
        shown: dict[str, list[str]],
        table: ExportTable,
        *,
        asked: Sequence[str] = (),
        if_empty: str = "no runs",
    ) -> None:
        self.paths = paths
        """The folders of the runs."""

        self._shown = shown
        self._table = table
        self._asked = asked
        self._if_empty = if_empty

    @property
    def rows(self) -> list[dict[str, Any]]:
        """One mapping per run: facts, config keys that differ, metrics, or the chosen columns."""
        return self._table.rows

    def to_pandas(self) -> pd.DataFrame:
        """The rows as a DataFrame; needs pandas, ``pip install 'epochal[frame]'``."""
        return self._table.to_pandas()

    @override
    def __len__(self) -> int:
        return len(self.paths)

    @overload
    def __getitem__(self, index: int) -> RunRecord: ...

    @overload
    def __getitem__(self, index: slice) -> list[RunRecord]: ...

    @override
    def __getitem__(self, index: int | slice) -> RunRecord | list[RunRecord]:
        if isinstance(index, slice):
            return [read_folder(path) for path in self.paths[index]]
        return read_folder(self.paths[index])

    @override
    def __repr__(self) -> str:
        return fit_columns(self._shown, self._asked) if self.paths else self._if_empty

    def _repr_html_(self) -> str:
        if not self.paths:
            return f"<pre>{to_html(self._if_empty)}</pre>"
        cells = {name: [to_html(cell) for cell in column] for name, column in self._shown.items()}
        cells["run"] = [
            link_to_run(path, name)
            for path, name in zip(self.paths, self._shown["run"], strict=True)
        ]
        rows = list(zip(*cells.values(), strict=True))
        return format_html_table(rows, [to_html(name) for name in cells])


def runs(
    where: str = "",
    *,
    sort: str = "",
    columns: str | Sequence[str] = "",
    search: str = "",
    limit: int | None = None,
    archived: bool = False,
    root: str | Path | None = None,
) -> RunTable:
    """The runs below a folder, the newest last.

    Args:
        where: Which runs, such as ``optim.lr > 1e-4 and val/acc > 0.9``.
        sort: Names to sort by, such as ``val/acc desc``.
        columns: Names of columns; by default those of ``epochal runs``.
        search: Words that README, tag or config must contain.
        limit: The maximum number of runs: the first ones, without ``sort`` the newest.
        archived: Whether to list archived runs as well.
        root: Folder of all runs; by default that of the project.

    Raises:
        ConfigError: A query is invalid.
    """
    asked = columns if isinstance(columns, str) else ", ".join(columns)
    root = get_runs_dir(root)
    folder, below = locate(root)
    run_query = RunQuery(
        where=where,
        sort=sort,
        columns=asked,
        search=search,
        limit=limit,
        hides_archived=not archived,
        below=below,
    )
    with Index.open(folder, is_kept=is_root(folder)) as index:
        with Progress() as progress:
            index.refresh(progress)
        result = query_runs(index, run_query)
        targets = columns_of(index, run_query.text("columns"), result)
        named = targets or names_in(index, run_query)
        return RunTable(
            [result.path(row) for row in result.rows],
            list_columns(result, targets) if targets else list_runs(result, named),
            tabulate_runs(result, targets or default_columns(result)),
            asked=[target.shown for target in named],
            if_empty="" if result.rows else describe_no_runs(index, run_query, root),
        )
