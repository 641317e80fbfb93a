"""Compares the last and best values of the metrics of runs."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, final

from epochal.records.compare.difference import is_equal_value, read_settings
from epochal.records.folder.reader import find_monitor, infer_mode
from epochal.records.metrics.points import TRAIN_PREFIX, is_step_mean
from epochal.records.metrics.summary import summarise_series

if TYPE_CHECKING:
    from collections.abc import Sequence

    from epochal.records.folder.reader import Mode, RunRecord
    from epochal.records.metrics.summary import SeriesSummary

Values = tuple[float | None, ...]


@final
@dataclass(frozen=True, slots=True)
class MetricComparison:
    """One metric of several runs; None where a run has no value."""

    name: str
    mode: Mode | None
    """Which way is better; None if unknown."""

    last: Values
    """The last value of each run."""

    best: Values
    """The best value of each run; None if it is unknown which way is better."""

    @property
    def is_same(self) -> bool:
        """Whether the last and the best values of all runs are equal."""
        return all(
            is_equal_value(column[0], value)
            for column in (self.last, self.best)
            for value in column
        )

    def to_json(self) -> dict[str, object]:
        """Plain values, with the difference of each run to the first."""
        return asdict(self) | {"delta": {"last": deltas(self.last), "best": deltas(self.best)}}

    def is_better(self, delta: float | None) -> bool | None:
        """Whether a delta is an improvement; None if it is zero, missing, or unknown."""
        if not delta or delta != delta or self.mode is None:
            return None
        return (delta > 0) == (self.mode == "max")


def deltas(values: Values) -> Values:
    """The difference of each value to the first; None if one is missing."""
    first = values[0]
    return tuple(None if first is None or value is None else value - first for value in values)


def compare_metrics(records: Sequence[RunRecord]) -> list[MetricComparison]:
    """Every metric of the runs: monitored ones first, training last."""
    monitors = [find_monitor(record) for record in records]
    monitored = {name for name, _ in monitors}
    series = [summarise_series(record.path) for record in records]

    def rank(name: str) -> tuple[bool, bool, bool, str]:
        is_rate = "lr" in (name.partition("/")[0], name.rpartition("/")[2])
        return (name not in monitored, is_rate, name.startswith(TRAIN_PREFIX), name)

    names = sorted({name for one in series for name in one}, key=rank)
    found = [(name, infer_mode(name, monitors)) for name in names]
    if not _log_equally_often(records):  # means over fewer steps have better best values
        found = [(name, None if is_step_mean(name) else mode) for name, mode in found]
    return [_compare_metric(name, mode, series) for name, mode in found]


def _log_equally_often(records: Sequence[RunRecord]) -> bool:
    """Whether training points of all runs are means over equally many steps."""
    sides = [read_settings(record).get("log.record_every") for record in records]
    return len({str(side.value) for side in sides if side is not None}) < 2


def _compare_metric(
    name: str, mode: Mode | None, series: Sequence[dict[str, SeriesSummary]]
) -> MetricComparison:
    found = [one.get(name) for one in series]
    best: Values = (None,) * len(found)
    if mode is not None:
        best = tuple(
            None if one is None else one.low if mode == "min" else one.high for one in found
        )
    return MetricComparison(
        name, mode, tuple(None if one is None else one.last for one in found), best
    )
