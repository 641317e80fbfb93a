"""JsonLines: a run's points as one JSON object per line, for any other program."""

from __future__ import annotations

from typing import TYPE_CHECKING, final

from typing_extensions import override

from epochal import durable
from epochal.engine.every import Every
from epochal.engine.mirror import Entry, Sink
from epochal.engine.tracker import Source, Tracker

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

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
        return _Lines(source.dir / FILE)

    @override
    def describe(self, run_dir: Path | None) -> str:
        return FILE


@final
class _Lines(Sink):
    def __init__(self, path: Path) -> None:
        self._file = durable.Appender(path, keep=0)

    @override
    def write(self, entries: list[Entry]) -> None:
        lines = [
            durable.encode_json({"step": one.step, "time": one.time, **one.values}) + b"\n"
            for one in entries
        ]
        self._file.append(b"".join(lines))

    @override
    def read_known(self, names: Iterable[str]) -> dict[str, int]:
        return {}

    @override
    def close(self, *, has_failed: bool) -> None:
        self._file.close()
