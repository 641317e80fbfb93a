"""Reads a run folder into rows of the index."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, final

from epochal import durable
from epochal.records.code import read_code_digest
from epochal.records.folder.derived_fields import (
    desc_of,
    describe_error,
    find_monitor,
    seconds_of,
    tag_of,
)
from epochal.records.folder.parent import read_parent
from epochal.records.folder.record import read_folder
from epochal.records.index.params import params_from_values, read_params
from epochal.records.index.replicates import replicate_key
from epochal.records.index.search_text import build_search_text
from epochal.records.index.sql_schema import MAX_INTEGER, MIN_INTEGER
from epochal.records.layout.coerce import as_float, as_mapping, as_text
from epochal.records.metrics.row_format import POINT_BYTES
from epochal.records.metrics.summary import summarise_series

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

    from epochal.records.folder.record import RunRecord
    from epochal.records.index.params import Param
    from epochal.records.index.search_text import SearchText

MetricRow = tuple[str, float | None, float | None, float | None, int, int]
"""Name, last, low, high, last step, count."""


@final
@dataclass(frozen=True, slots=True)
class RunRows:
    """The rows of one run."""

    values: Mapping[str, Any]
    """The columns of ``runs``, without ``path`` and ``stamp``."""

    params: Iterable[Param]
    metrics: list[MetricRow]
    words: SearchText


def read_run_rows(folder: Path) -> RunRows:
    """Read one run; damaged values are empty and listed in ``damage``."""
    record = read_folder(folder)
    provenance = record.provenance
    params = read_params(provenance) or params_from_values(record.expanded)
    points = count_points(folder)  # before reading, so that later points are read next time
    metrics = read_metrics(record)
    values = {
        **_run_columns(record),
        "best": find_best(record, metrics),
        "step": find_step(record, metrics),
        "points": points,
        "replicate": replicate_key(record.run, provenance),
    }
    return RunRows(
        {name: _bindable(value) for name, value in values.items()},
        [_escape_param(one) for one in params],
        metrics,
        build_search_text(record, params),
    )


def escape_surrogates(text: str) -> str:
    """The text with escapes for lone surrogates, which SQLite refuses."""
    return text if text.isascii() else text.encode("utf-8", "backslashreplace").decode()


def _escape_param(one: Param) -> Param:
    if one.key.isascii() and (one.text is None or one.text.isascii()):
        return one
    return one._replace(
        key=escape_surrogates(one.key),
        text=None if one.text is None else escape_surrogates(one.text),
    )


def _run_columns(record: RunRecord) -> dict[str, Any]:
    run, summary = record.run, record.summary
    parent = read_parent(run)
    return {
        "run": summary.id,
        "project": summary.project,
        "tag": tag_of(record),
        "desc": desc_of(record),
        "variant": as_text(run.get("variant")),
        "status": summary.status,
        "reason": summary.reason,
        "runner": summary.runner,
        "started": summary.started,
        "ended": summary.ended,
        "seconds": seconds_of(record),
        "epoch": summary.epoch,
        "attempt": summary.attempt,
        "rollbacks": summary.rollbacks,
        "seed": _seed(run.get("seed")),
        "host": as_text(record.status.get("host")),
        "parent": "" if parent is None else parent.run,
        "parent_kind": "" if parent is None else parent.kind,
        "monitor": as_text(run.get("monitor")),
        "code": read_code_digest(record.path, summary.attempt),
        "error": describe_error(record.result),
        "result": durable.encode_json(as_mapping(record.result.get("metrics"))).decode(),
        "damage": "\n".join(summary.damage),
    }


def count_points(folder: Path) -> int:
    """The number of points of the run in ``folder``."""
    try:
        return (folder / "metrics.bin").stat().st_size // POINT_BYTES
    except OSError:  # it has none yet
        return 0


def read_metrics(record: RunRecord) -> list[MetricRow]:
    """The metrics of a run; the last value is that of its result, if there is one.

    They differ for training: points are means of a few steps, results are means of an epoch.
    """
    final = {
        name: as_float(value) for name, value in as_mapping(record.result.get("metrics")).items()
    }
    rows = [
        (
            escape_surrogates(name),
            final.pop(name, as_float(one.last)),
            as_float(one.low),
            as_float(one.high),
            one.last_step,
            one.count,
        )
        for name, one in summarise_series(record.path).items()
    ]
    step = record.summary.step
    return rows + [
        (escape_surrogates(str(name)), value, None, None, step, 0) for name, value in final.items()
    ]


def find_step(record: RunRecord, metrics: list[MetricRow]) -> int:
    """The last known step: a killed run may have logged later steps than its status."""
    return max([record.summary.step, *[row[4] for row in metrics]])


def find_best(record: RunRecord, metrics: list[MetricRow]) -> float | None:
    """The best value of the monitored metric: from the result, or so far."""
    if record.result:
        return as_float(record.result.get("best"))
    name, mode = find_monitor(record)
    for known, _, low, high, *_ in metrics:
        if known == escape_surrogates(name):
            return high if mode == "max" else low
    return None


def _bindable(value: object) -> object:
    if isinstance(value, int):  # a damaged record may have one that is too large for SQLite
        return max(MIN_INTEGER, min(value, MAX_INTEGER))
    return escape_surrogates(value) if isinstance(value, str) else value


def _seed(value: object) -> int | str | None:
    if not isinstance(value, int) or isinstance(value, bool):
        return None
    return value if MIN_INTEGER <= value <= MAX_INTEGER else str(value)
