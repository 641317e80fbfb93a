"""CsvLog: a run's points as one table of comma-separated values, for any other program."""

from __future__ import annotations

import csv
import io
from typing import TYPE_CHECKING, final

from typing_extensions import override

from epochal import durable
from epochal.engine.every import Every
from epochal.engine.mirror import Entry, Sink
from epochal.engine.tracker import Source, Tracker

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

FILE = "points.csv"


@final
class CsvLog(Tracker):
    """Writes ``points.csv`` into the run's folder: one row of step, time, name and value each.

    Args:
        every: How often it takes points of training; 0 leaves out those between epochs.
    """

    is_rewritten = True

    def __init__(
        self,
        *,
        every: Every = "100st",  # type: ignore[assignment]  # the schema shows what users type
    ) -> None:
        self.every = Every.parse(every)

    @override
    def open(self, source: Source) -> Sink:
        return _Table(source.dir / FILE)

    @override
    def describe(self, run_dir: Path | None) -> str:
        return FILE


@final
class _Table(Sink):
    def __init__(self, path: Path) -> None:
        self._file = durable.Appender(path, keep=0)
        self._append([("step", "time", "name", "value")])

    @override
    def write(self, entries: list[Entry]) -> None:
        self._append(
            [
                (entry.step, repr(entry.time), name, repr(value))
                for entry in entries
                for name, value in entry.values.items()
            ]
        )

    @override
    def read_known(self, names: Iterable[str]) -> dict[str, int]:
        return {}

    @override
    def close(self, *, has_failed: bool) -> None:
        self._file.close()

    def _append(self, rows: list[tuple[object, ...]]) -> None:
        text = io.StringIO()
        csv.writer(text, lineterminator="\n").writerows(rows)
        self._file.append(text.getvalue().encode())
