"""JsonLines: the points of a run as one JSON object per line."""

from __future__ import annotations

from typing import TYPE_CHECKING, final

from typing_extensions import override

from epochal import durable
from epochal.engine.interfaces.every import Every
from epochal.engine.tracking.line_file import LineFileSink
from epochal.engine.tracking.tracker import TrackedRun, Tracker

if TYPE_CHECKING:
    from pathlib import Path

    from epochal.engine.tracking.mirror import Entry, Sink

FILE = "points.jsonl"


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
        return LineFileSink(source.dir / FILE, encode)

    @override
    def describe(self, run_dir: Path | None) -> str:
        return FILE


def encode(entry: Entry) -> bytes:
    """The points of a step as one line."""
    return durable.encode_json({"step": entry.step, "time": entry.time, **entry.values}) + b"\n"
