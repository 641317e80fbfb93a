"""CsvLog and JsonLines: the points of a run as a file in its folder."""

from __future__ import annotations

import csv
import io
from typing import TYPE_CHECKING, final

from typing_extensions import override

from epochal import durable
from epochal.engine.tracking.mirror import Entry, Sink
from epochal.engine.tracking.tracker import TrackedRun, Tracker

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

CSV_FILE = "points.csv"
JSON_FILE = "points.jsonl"


@final
class CsvLog(Tracker):
    """Writes ``points.csv`` into the run's folder: one row of step, time, name, value per point."""

    is_rewritten = True

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
    """

    is_rewritten = True

    @override
    def open(self, source: TrackedRun) -> Sink:
        return LineFileSink(source.dir / JSON_FILE, encode_json)

    @override
    def describe(self, run_dir: Path | None) -> str:
        return JSON_FILE


@final
class LineFileSink(Sink):
    """Writes a new file that begins with ``head``, and appends the encoded entries to it."""

    def __init__(self, path: Path, encode: Callable[[Entry], bytes], *, head: bytes = b"") -> None:
        self._encode = encode
        self._file = durable.Appender(path, keep=0)
        if head:
            self._file.append(head)

    @override
    def write(self, entries: list[Entry]) -> None:
        self._file.append(b"".join(map(self._encode, entries)))

    @override
    def close(self, *, has_failed: bool) -> None:
        self._file.close()


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
