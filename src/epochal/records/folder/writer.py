"""Writes the record of a run while it happens, or pretends to."""

from __future__ import annotations

import os
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Protocol, final

from typing_extensions import override

from epochal import durable
from epochal.records.folder import redacted as clean
from epochal.records.folder.provenance import redact_provenance
from epochal.records.layout import attempts
from epochal.records.layout.os_errors import raising_record_errors
from epochal.records.layout.process import host_name, process_token
from epochal.records.metrics.points import MetricWriter
from epochal.records.metrics.row_format import POINT_FIELDS

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from epochal.records.folder.folder import RunFolder

Status = Literal["starting", "running", "finished", "stopped", "failed", "interrupted", "preempted"]
COMPLETED_STATUSES: tuple[Status, ...] = ("finished", "stopped")
"""It came to its end, planned or early, and what it came to counts."""

ENDED_STATUSES: tuple[Status, ...] = (*COMPLETED_STATUSES, "failed", "interrupted", "preempted")

RECORD_FORMAT = 1
"""Version of the record's layout, kept in ``run.json``."""


class ConfigFileText(Protocol):
    """One config file as it was read."""

    @property
    def path(self) -> Path | str | None:
        """Where it lay; None for a config that came from Python."""

    @property
    def text(self) -> str:
        """What stood in it."""


class Writer(Protocol):
    """What a run tells its record; each call returns when a killed process loses nothing of it.

    No text is written with the secrets that it holds.
    """

    @property
    def path(self) -> Path | None:
        """The folder of the record; None when nothing is written."""

    def write_readme(self, tag: str, desc: str = "") -> None:
        """Title and purpose of the run for people; an existing page is never touched."""

    def write_config(
        self,
        written: Sequence[ConfigFileText],
        expanded_text: str,
        format: str,
        provenance: Mapping[str, object],
    ) -> None:
        """The config as written with its bases, expanded, and where each value came from.

        Args:
            written: The files, the main one first; their places to each other are kept.
            expanded_text: The whole config with every default, in ``format``.
            format: ``yaml``, ``toml`` or ``json``.
            provenance: What ``collect_provenance`` gives.
        """

    def write_observed(self, data: Mapping[str, object]) -> None:
        """What each constructor really received."""

    def write_run(self, info: Mapping[str, object]) -> None:
        """What is known when the run starts: project, tag, desc, seed, command, machine, ..."""

    def go_back(self, *, checkpoint: str, origin: int, step: int, points: object) -> int:
        """The run goes on from an earlier state; gives the number of its new attempt.

        Args:
            checkpoint: Its name.
            origin: The attempt that made it.
            step: Of the checkpoint.
            points: How many points there were when it was made, which are all that still count.
        """

    def write_status(self, status: Status, **fields: object) -> None:
        """Where the run stands now; fields of earlier calls are kept, points are synced first."""

    def write_result(self, result: Mapping[str, object]) -> None:
        """How the run ended."""

    def log(self, points: Mapping[str, float], step: int) -> None:
        """One point for each named metric, all at the same step, all or none."""

    @property
    def num_points(self) -> int:
        """How many points the record holds; whoever goes on from here keeps these."""

    def sync(self) -> None:
        """Bring all points onto the disk; any thread may call it."""

    def event(self, kind: str, **data: object) -> None:
        """Something that happened once, such as a stage, a warning or a saved checkpoint."""

    def close(self) -> None:
        """Sync and let go of all files; a second call does nothing."""


@final
class RunWriter(Writer):
    """Writes into the folder of one run; one thread of one process may use it.

    Args:
        folder: Where to.
        attempt: The number of this process among those that worked on the run.
    """

    def __init__(self, folder: RunFolder, *, attempt: int = 0) -> None:
        self.folder = folder
        self.attempt = attempt
        self._metrics = MetricWriter(folder.path)
        self._events: durable.Appender | None = None
        self._status = _read_status(folder.path) if attempt else {}

    @property
    @override
    def path(self) -> Path:
        return self.folder.path

    @override
    @raising_record_errors()
    def write_readme(self, tag: str, desc: str = "") -> None:
        path = self.path / "README.md"
        if not path.exists():
            clean.write_text(path, _readme(tag, desc))

    @override
    @raising_record_errors()
    def write_config(
        self,
        written: Sequence[ConfigFileText],
        expanded_text: str,
        format: str,
        provenance: Mapping[str, object],
    ) -> None:
        config_dir = self.folder.config_dir
        sources = []
        for source, name in zip(written, _place_sources(written, format), strict=True):
            copy = config_dir / name
            if not copy.parent.is_dir():
                durable.make_dir(copy.parent)
            clean.write_text(copy, source.text)
            sources.append({"file": name, "path": source.path})
        clean.write_json(config_dir / "sources.json", sources)
        clean.write_text(config_dir / f"expanded.{format}", expanded_text)
        durable.write_json(config_dir / "provenance.json", redact_provenance(provenance))

    @override
    @raising_record_errors()
    def write_observed(self, data: Mapping[str, object]) -> None:
        clean.write_json(self.folder.config_dir / "observed.json", data)

    @override
    @raising_record_errors()
    def write_run(self, info: Mapping[str, object]) -> None:
        always = {"format": RECORD_FORMAT, "id": self.folder.id, "created": _now()}
        clean.write_json(self.path / "run.json", {**always, **info})

    @override
    @raising_record_errors()
    def go_back(self, *, checkpoint: str, origin: int, step: int, points: object) -> int:
        path = self.path / "run.json"
        run: Any = durable.decode_json(path.read_bytes())
        number = self.attempt + 1
        again = attempts.add_rollback_attempt(
            run, number, checkpoint=checkpoint, origin=origin, step=step, points=points
        )
        clean.write_json(path, again)
        self.attempt = number
        return number

    @override
    @raising_record_errors()
    def write_status(self, status: Status, **fields: object) -> None:
        now = _now()
        if not self._status:
            self._status = {"reason": "", "step": 0, "epoch": 0, "started": now}
        owner = {"pid": os.getpid(), "host": host_name(), "process": process_token(os.getpid())}
        ended = now if status in ENDED_STATUSES else None
        owner |= {"attempt": self.attempt}
        self._status |= {"status": status, **owner, "updated": now, "ended": ended, **fields}
        self._metrics.sync()  # a reader must find the points of the step that the status names
        clean.write_json(self.path / "status.json", self._status)

    @override
    @raising_record_errors()
    def write_result(self, result: Mapping[str, object]) -> None:
        clean.write_json(self.path / "result.json", {"attempt": self.attempt, **result})

    @override
    def log(self, points: Mapping[str, float], step: int) -> None:
        self._metrics.log(points, step, attempt=self.attempt)

    @property
    @override
    def num_points(self) -> int:
        return self._metrics.num_points

    @override
    def sync(self) -> None:
        self._metrics.sync()

    @override
    @raising_record_errors()
    def event(self, kind: str, **data: object) -> None:
        if self._events is None:
            self._events = durable.open_lines(self.path / "events.jsonl")
        attempt = {"attempt": self.attempt} if self.attempt else {}
        self._events.append(clean.encode_line({"time": _now(), "kind": kind, **attempt, **data}))

    @override
    @raising_record_errors()
    def close(self) -> None:
        self._metrics.sync()
        self._metrics.close()
        if self._events is not None:
            self._events.sync()
            self._events.close()
            self._events = None


@final
class NullWriter(Writer):
    """Takes everything and writes nothing at all."""

    @property
    @override
    def path(self) -> None:
        return None

    @override
    def write_readme(self, tag: str, desc: str = "") -> None:
        pass

    @override
    def write_config(
        self,
        written: Sequence[ConfigFileText],
        expanded_text: str,
        format: str,
        provenance: Mapping[str, object],
    ) -> None:
        pass

    @override
    def write_observed(self, data: Mapping[str, object]) -> None:
        pass

    @override
    def write_run(self, info: Mapping[str, object]) -> None:
        pass

    @override
    def go_back(self, *, checkpoint: str, origin: int, step: int, points: object) -> int:
        return origin + 1

    @override
    def write_status(self, status: Status, **fields: object) -> None:
        pass

    @override
    def write_result(self, result: Mapping[str, object]) -> None:
        pass

    @override
    def log(self, points: Mapping[str, float], step: int) -> None:
        pass

    @property
    @override
    def num_points(self) -> int:
        return 0

    @override
    def sync(self) -> None:
        pass

    @override
    def event(self, kind: str, **data: object) -> None:
        pass

    @override
    def close(self) -> None:
        pass


def _read_status(folder: Path) -> dict[str, object]:
    """What earlier processes left, without how the last of them ended."""
    status = durable.find_object(folder / "status.json")
    return status and {**status, "reason": ""}


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds")


def _readme(tag: str, desc: str) -> str:
    title = " ".join(tag.split()) or "untitled"
    body = desc.strip() or "_Write here what this run is for and what came of it._"
    fields = ", ".join(f'("{name}", "{kind}")' for name, kind in POINT_FIELDS)
    return (
        f"# {title}\n\n{body}\n\n---\n\n"
        "`metrics.bin` holds all points, `series.jsonl` the names of the series:\n\n"
        "```python\nimport numpy as np\n\n"
        f'np.fromfile("metrics.bin", np.dtype([{fields}]))\n```\n'
    )


def _place_sources(sources: Sequence[ConfigFileText], format: str) -> list[str]:
    # Below their common folder, so that `$BASE: ../base.yaml` still leads to the copy.
    paths = [
        os.path.normpath(Path(source.path).absolute()) if source.path else "" for source in sources
    ]
    known = [str(Path(path).parent) for path in paths if path]
    top = os.path.commonpath(known) if known else ""
    return [
        str(Path("written", os.path.relpath(path, top) if path else f"config-{i}.{format}"))
        for i, path in enumerate(paths)
    ]
