"""CsvLog: a run's points as one table of comma-separated values, for any other program."""

from __future__ import annotations

import csv
import io
from typing import TYPE_CHECKING, final

from typing_extensions import override

from epochal.engine.every import Every
from epochal.engine.lines import Lines
from epochal.engine.tracker import Source, Tracker

if TYPE_CHECKING:
    from pathlib import Path

    from epochal.engine.mirror import Entry, Sink

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
        return Lines(source.dir / FILE, encode, head=b"step,time,name,value\n")

    @override
    def describe(self, run_dir: Path | None) -> str:
        return FILE


def encode(entry: Entry) -> bytes:
    """A row for each point of a step."""
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows(
        (entry.step, repr(entry.time), name, repr(value)) for name, value in entry.values.items()
    )
    return text.getvalue().encode()
