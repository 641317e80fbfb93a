"""A chart of the named metrics of runs; by default of the monitored metric."""

from __future__ import annotations

from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

from epochal.cli.draw.chart import Chart, finite_values
from epochal.errors import RecordError, suggest
from epochal.records.metrics.points import is_epoch_mean
from epochal.text.formatting import format_count

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from epochal.records import RunRecord
    from epochal.records.metrics.curve_cache import Zoom

_BUCKETS = 1200
_SPAN = 1000.0
_SHORT_ID = 4


def chart_curves(
    records: Sequence[RunRecord],
    wanted: Sequence[str],
    progress: Callable[[str], None] | None = None,
) -> Chart:
    """The named metrics over the steps; without names the monitored one.

    Args:
        records: The runs; for a single run, every split of the monitored metric is drawn.
        wanted: Names, or patterns such as ``train/*``.
        progress: Called with messages while large files are read.

    Raises:
        RecordError: A run has no such metric, or no metrics at all.
    """
    chosen = [_choose(record, wanted, is_alone=len(records) == 1) for record in records]
    names = list(dict.fromkeys(name for own in chosen for name in own))
    titles = _titles(records)
    zooms = {
        _label(title, name, is_only=len(names) == 1): _read(record, name, progress)
        for record, title, own in zip(records, titles, chosen, strict=True)
        for name in own
    }
    curves = {
        label: dict(zip(found.steps.tolist(), found.mean.tolist(), strict=True))
        for label, found in zooms.items()
    }
    steps = sorted({step for curve in curves.values() for step in curve})
    if not steps:
        paths = ", ".join(str(record.path) for record in records)
        raise RecordError(f"{paths}: no readable point of {', '.join(names)}")
    first = records[0].summary
    whose = f"{first.tag} ({first.id})" if len(records) == 1 else format_count(len(records), "run")
    return Chart(
        title=f"{whose}: {', '.join(names)}",
        x=steps,
        lines={name: [curve.get(step) for step in steps] for name, curve in curves.items()},
        x_name=_name_steps(max(int(found.count.max(initial=0)) for found in zooms.values())),
        y_name=", ".join(names),
        is_log_y=_spans_decades([one for curve in curves.values() for one in curve.values()]),
    )


def _titles(records: Sequence[RunRecord]) -> list[str]:
    """Names that distinguish the runs; empty for a single run."""
    if len(records) == 1:
        return [""]
    short = [f"{one.summary.tag} {one.summary.id[-_SHORT_ID:]}" for one in records]
    return short if len(set(short)) == len(short) else [one.summary.id for one in records]


def _label(title: str, name: str, *, is_only: bool) -> str:
    return title if title and is_only else f"{title} {name}".strip()


def _spans_decades(values: Sequence[float]) -> bool:
    finite = finite_values(values)
    return bool(finite) and min(finite) > 0 and max(finite) / min(finite) >= _SPAN


def _name_steps(most: int) -> str:
    return "step" if most <= 1 else f"step, means of up to {most:,} points"


def _read(record: RunRecord, name: str, progress: Callable[[str], None] | None) -> Zoom:
    """The values of a metric by step, averaged to what a screen can show."""
    from epochal.records.metrics.curve_cache import zoom

    return zoom(record.path, name, buckets=_BUCKETS, progress=progress)


def _choose(record: RunRecord, wanted: Sequence[str], *, is_alone: bool) -> list[str]:
    known = record.metric_names()
    if not known:
        raise RecordError(f"{record.path}: has no metrics to plot")
    if not wanted:
        return _important(record, known, is_alone=is_alone)
    names: list[str] = []
    for one in wanted:
        found = [name for name in known if fnmatchcase(name, one)]
        if not found:
            hint = suggest(one, known) or f"it has {', '.join(known[:8])}"
            raise RecordError(f"{record.path}: no metric {one!r}\n  {hint}")
        names += found
    return list(dict.fromkeys(names))


def _important(record: RunRecord, known: list[str], *, is_alone: bool) -> list[str]:
    """The monitored metric, else the loss; for a single run, in all splits."""
    monitor = record.run.get("monitor")
    name = monitor if monitor in known else next((one for one in known if _is_loss(one)), known[0])
    kind = name.rpartition("/")[2]
    alike = [one for one in known if one.rpartition("/")[2] == kind]
    alike = [one for one in alike if not is_epoch_mean(one)] or [name]
    return alike if is_alone else [name]


def _is_loss(name: str) -> bool:
    return name.rpartition("/")[2] == "loss"
