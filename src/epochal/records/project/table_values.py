"""Reads the metrics that cells of result tables show, from the index of the runs."""

from __future__ import annotations

import json
import math
from typing import TYPE_CHECKING, Any, NamedTuple

from epochal.records.folder.reader import MONITOR_KEYS, get_monitor_mode, infer_mode
from epochal.records.query.query_runs import decode

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from epochal.records.folder.reader import Mode
    from epochal.records.index import Index
    from epochal.records.project.table_content import MetricCell

_RUNS = (
    "SELECT run, id, monitor, best FROM runs WHERE run IN (SELECT value FROM json_each(?)) "
    "ORDER BY started, id"
)
_METRICS = (
    "SELECT run_id, name, last, low, high FROM metrics "
    "WHERE run_id IN (SELECT value FROM json_each(?)) AND name IN (SELECT value FROM json_each(?))"
)
_MODES = (
    "SELECT run_id, key, text, number FROM params "
    "WHERE run_id IN (SELECT value FROM json_each(?)) AND key IN (SELECT value FROM json_each(?))"
)


class CellValue(NamedTuple):
    """What a cell shows."""

    value: float | None
    problem: str = ""
    """Why there is no value."""


class _Run(NamedTuple):
    id: int
    monitor: str
    best: float | None


def read_cell_values(index: Index, cells: Iterable[MetricCell]) -> dict[MetricCell, CellValue]:
    """The value of each cell; of several runs with the same id, the newest counts."""
    wanted = list(dict.fromkeys(cells))
    if not wanted:
        return {}
    names = json.dumps(list({cell.run for cell in wanted}))
    runs = {run: _Run(*others) for run, *others in index.fetch(_RUNS, (names,))}
    ids = json.dumps([run.id for run in runs.values()])
    metrics = json.dumps(list({cell.metric for cell in wanted}))
    figures = {
        (run_id, name): values for run_id, name, *values in index.fetch(_METRICS, (ids, metrics))
    }
    settings: dict[int, dict[str, Any]] = {}
    for run_id, key, text, number in index.fetch(_MODES, (ids, json.dumps(MONITOR_KEYS))):
        settings.setdefault(run_id, {})[key] = decode(text, number)
    found = {}
    for cell in wanted:
        run = runs.get(cell.run)
        if run is None:
            found[cell] = CellValue(None, f"run {cell.run} is gone")
        elif (run.id, cell.metric) not in figures:
            found[cell] = CellValue(None, f"run {cell.run} has no metric {cell.metric}")
        else:
            mode = get_monitor_mode(settings.get(run.id, {}))
            found[cell] = _read_value(cell, run, mode, figures[run.id, cell.metric])
    return found


def _read_value(
    cell: MetricCell, run: _Run, mode: Mode, figures: Sequence[float | None]
) -> CellValue:
    last, low, high = figures
    last = math.nan if last is None else last  # SQLite stores NaN as NULL
    if cell.which == "last" or (low is None and high is None):
        return CellValue(last)
    if cell.metric == run.monitor and run.best is not None:
        return CellValue(run.best)
    known = infer_mode(cell.metric, [(run.monitor, mode)])
    if known is None:
        return CellValue(None, f"which way {cell.metric} is better is unknown; link its last value")
    return CellValue(high if known == "max" else low)
