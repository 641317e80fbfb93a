"""JsonLines: a run's points as one JSON object per line, for any other program."""

from __future__ import annotations

from typing import TYPE_CHECKING, final

from typing_extensions import override

from epochal import durable
from epochal.engine.every import Every
from epochal.engine.lines import Lines
from epochal.engine.tracker import Source, Tracker

if TYPE_CHECKING:
    from pathlib import Path

    from epochal.engine.mirror import Entry, Sink

FILE = "points.jsonl"


@final
class JsonLines(Tracker):
    """Writes ``points.jsonl`` into the run's folder: step, time, and the points of that step.

    Numbers that JSON does not have are the texts ``$nan``, ``$inf`` and ``-$inf``.

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
        return Lines(source.dir / FILE, encode)

    @override
    def describe(self, run_dir: Path | None) -> str:
        return FILE


def encode(entry: Entry) -> bytes:
    """The points of a step as one line."""
    return durable.encode_json({"step": entry.step, "time": entry.time, **entry.values}) + b"\n"
