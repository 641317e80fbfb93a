"""Curves of a run as one chart: those that were named, or the one that matters."""

from __future__ import annotations

import math
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

from epochal.cli.chart import Chart
from epochal.errors import RecordError, suggest
from epochal.records.metrics import is_epoch_mean

if TYPE_CHECKING:
    from collections.abc import Sequence

    from epochal.records import RunRecord

_BUCKETS = 1200


def chart_curves(record: RunRecord, wanted: Sequence[str]) -> Chart:
    """The named metrics over the steps; without names the monitored one of every split.

    Args:
        record: Of the run.
        wanted: Names, or patterns such as ``train/*``.

    Raises:
        RecordError: There is no such metric, or none at all.
    """
    names = _choose(record, wanted)
    curves = {name: _read(record, name) for name in names}
    steps = sorted({step for curve in curves.values() for step in curve})
    if not steps:
        raise RecordError(f"{record.path}: no readable point of {', '.join(names)}")
    lines = {name: [curve.get(step, math.nan) for step in steps] for name, curve in curves.items()}
    title = f"{record.summary.tag} ({record.summary.id}): {', '.join(names)}"
    return Chart(title=title, x=steps, lines=lines, x_name="step", y_name=", ".join(names))


def _read(record: RunRecord, name: str) -> dict[float, float]:
    """The values of a metric by step, not more than a screen can show."""
    from epochal.records.zoom import zoom

    found = zoom(record.path, name, buckets=_BUCKETS)
    return dict(zip(found.steps.tolist(), found.mean.tolist(), strict=True))


def _choose(record: RunRecord, wanted: Sequence[str]) -> list[str]:
    known = record.metric_names()
    if not known:
        raise RecordError(f"{record.path}: has no metrics to draw")
    if not wanted:
        return _important(record, known)
    names: list[str] = []
    for one in wanted:
        found = [name for name in known if fnmatchcase(name, one)]
        if not found:
            hint = suggest(one, known) or f"it has {', '.join(known[:8])}"
            raise RecordError(f"{record.path}: no metric {one!r}\n  {hint}")
        names += found
    return list(dict.fromkeys(names))


def _important(record: RunRecord, known: list[str]) -> list[str]:
    """The monitored metric, or else the loss, in all splits that have it."""
    monitor = record.run.get("monitor")
    name = monitor if monitor in known else next((one for one in known if _is_loss(one)), known[0])
    kind = name.rpartition("/")[2]
    alike = [one for one in known if one.rpartition("/")[2] == kind]
    return [one for one in alike if not is_epoch_mean(one)] or [name]


def _is_loss(name: str) -> bool:
    return name.rpartition("/")[2] == "loss"
