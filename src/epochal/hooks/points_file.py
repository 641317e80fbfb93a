"""CsvLog and JsonLines: the points of a run as a file in its folder."""

from __future__ import annotations

import csv
import io
from typing import TYPE_CHECKING, final

from typing_extensions import override

from epochal import durable
from epochal.engine.interfaces.every import Every
from epochal.engine.tracking.line_file import LineFileSink
from epochal.engine.tracking.tracker import TrackedRun, Tracker

if TYPE_CHECKING:
    from pathlib import Path

    from epochal.engine.tracking.mirror import Entry, Sink

CSV_FILE = "points.csv"
JSON_FILE = "points.jsonl"


@final
class CsvLog(Tracker):
    """Writes ``points.csv`` into the run's folder: a row of step, time, name and value per point.

    Args:
        every: How often training points are written; 0 writes only those of epochs.
    """

    is_rewritten = True

    def __init__(
        self,
        *,
        every: Every = "100st",  # type: ignore[assignment]  # the schema shows what users type
    ) -> None:
        self.every = Every.parse(every)

    @override
    def open(self, source: TrackedRun) -> Sink:
        return LineFileSink(source.dir / CSV_FILE, encode_csv, head=b"step,time,name,value\n")

    @override
    def describe(self, run_dir: Path | None) -> str:
        return CSV_FILE


@final
class JsonLines(Tracker):
    """Writes ``points.jsonl`` into the run's folder: step, time, and the points of that step.

    Values that JSON lacks are written as the strings ``$nan``, ``$inf`` and ``-$inf``.

    Args:
        every: How often training points are written; 0 writes only those of epochs.
    """

    is_rewritten = True

    def __init__(
        self,
        *,
        every: Every = "100st",  # type: ignore[assignment]  # the schema shows what users type
    ) -> None:
        self.every = Every.parse(every)

    @override
    def open(self, source: TrackedRun) -> Sink:
        return LineFileSink(source.dir / JSON_FILE, encode_json)

    @override
    def describe(self, run_dir: Path | None) -> str:
        return JSON_FILE


def encode_csv(entry: Entry) -> bytes:
    """A row for each point of a step."""
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows(
        (entry.step, repr(entry.time), name, repr(value)) for name, value in entry.values.items()
    )
    return text.getvalue().encode()


def encode_json(entry: Entry) -> bytes:
    """The points of a step as one line."""
    return durable.encode_json({"step": entry.step, "time": entry.time, **entry.values}) + b"\n"
