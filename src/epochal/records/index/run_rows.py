"""One run folder as rows of the index."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, final

from epochal import durable
from epochal.records.code import digest_of
from epochal.records.folder.derived_fields import desc_of, describe_error, seconds_of, tag_of
from epochal.records.folder.parent import read_parent
from epochal.records.folder.record import read_folder
from epochal.records.index.params import params_of, params_of_values
from epochal.records.index.replicates import replicate_key
from epochal.records.index.schema import MAX_INTEGER, MIN_INTEGER
from epochal.records.index.search_text import words_of
from epochal.records.layout.coerce import as_mapping, as_real, as_text
from epochal.records.metrics.row_format import POINT_BYTES
from epochal.records.metrics.summary import summarise_series

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

    from epochal.records.folder.record import RunRecord
    from epochal.records.index.params import Param
    from epochal.records.index.search_text import Words

MetricRow = tuple[str, float | None, float | None, float | None, int, int]
"""Name, last, low, high, last step, count."""


@final
@dataclass(frozen=True, slots=True)
class RunRows:
    """What the index keeps of one run."""

    values: Mapping[str, Any]
    """The columns of ``runs``, without ``path`` and ``stamp``."""

    params: Iterable[Param]
    metrics: list[MetricRow]
    words: Words


def read_rows(folder: Path) -> RunRows:
    """Read one run; what is damaged is left empty, and said in ``damage``."""
    record = read_folder(folder)
    provenance = record.provenance
    params = params_of(provenance) or params_of_values(record.expanded)
    points = count_points(folder)  # before they are read: later ones are for the next time
    metrics = read_metrics(record)
    values = {
        **_facts(record),
        "best": find_best(record, metrics),
        "step": find_step(record, metrics),
        "points": points,
        "replicate": replicate_key(record.run, provenance),
    }
    return RunRows(
        {name: _bindable(value) for name, value in values.items()},
        [_clean_param(one) for one in params],
        metrics,
        words_of(record, params),
    )


def clean(text: str) -> str:
    """The text as a database takes it: halves of characters become escapes."""
    return text if text.isascii() else text.encode("utf-8", "backslashreplace").decode()


def _clean_param(one: Param) -> Param:
    if one.key.isascii() and (one.text is None or one.text.isascii()):
        return one
    return one._replace(key=clean(one.key), text=None if one.text is None else clean(one.text))


def _facts(record: RunRecord) -> dict[str, Any]:
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
        "code": digest_of(record.path, summary.attempt),
        "error": describe_error(record.result),
        "result": durable.encode_json(as_mapping(record.result.get("metrics"))).decode(),
        "damage": "\n".join(summary.damage),
    }


def count_points(folder: Path) -> int:
    """How many points the run in ``folder`` holds."""
    try:
        return (folder / "metrics.bin").stat().st_size // POINT_BYTES
    except OSError:  # it has none yet
        return 0


def read_metrics(record: RunRecord) -> list[MetricRow]:
    """The metrics of a run; what its result says of one is its last value, and not its last point.

    The two differ for training: points are means of a few steps, and a result is that of an epoch.
    """
    final = {
        name: as_real(value) for name, value in as_mapping(record.result.get("metrics")).items()
    }
    rows = [
        (
            clean(name),
            final.pop(name, as_real(one.last)),
            as_real(one.low),
            as_real(one.high),
            one.last_step,
            one.count,
        )
        for name, one in summarise_series(record.path).items()
    ]
    step = record.summary.step
    return rows + [(clean(str(name)), value, None, None, step, 0) for name, value in final.items()]


def find_step(record: RunRecord, metrics: list[MetricRow]) -> int:
    """The last step that is known of: one that was killed may have logged more than it told."""
    return max([record.summary.step, *[row[4] for row in metrics]])


def find_best(record: RunRecord, metrics: list[MetricRow]) -> float | None:
    """The best value of the monitor: as the result says, or until now if there is none yet."""
    if record.result:
        return as_real(record.result.get("best"))
    from epochal.records.compare.metrics import find_monitor  # most runs have ended

    name, mode = find_monitor(record)
    for known, _, low, high, *_ in metrics:
        if known == clean(name):
            return high if mode == "max" else low
    return None


def _bindable(value: object) -> object:
    if isinstance(value, int):  # a damaged record may hold a larger one than a database takes
        return max(MIN_INTEGER, min(value, MAX_INTEGER))
    return clean(value) if isinstance(value, str) else value


def _seed(value: object) -> int | str | None:
    if not isinstance(value, int) or isinstance(value, bool):
        return None
    return value if MIN_INTEGER <= value <= MAX_INTEGER else str(value)
