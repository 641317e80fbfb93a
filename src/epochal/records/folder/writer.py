"""Writes the record of a run; a null writer writes nothing."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, final

from typing_extensions import override

from epochal import durable
from epochal.records.folder import redacted
from epochal.records.folder.provenance import redact_provenance
from epochal.records.folder.readme import README_FILE, RunReadme, write_readme
from epochal.records.layout import attempts
from epochal.records.layout.os_errors import raising_record_errors
from epochal.records.layout.process import describe_process, utc_now
from epochal.records.layout.run_status import ENDED_STATUSES
from epochal.records.metrics.points import POINT_FIELDS, MetricWriter

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from epochal.config.source_file import SourceFile
    from epochal.records.folder.folder import RunFolder
    from epochal.records.layout.lease import Lease
    from epochal.records.layout.run_status import Status

RECORD_FORMAT = 1
"""Version of the layout of records, in ``run.json``."""

_FIELDS = ", ".join(f'("{name}", "{kind}")' for name, kind in POINT_FIELDS)
_HOW_TO_READ = f"""---

`metrics.bin` holds all points, `series.jsonl` the names of the series:

```python
import numpy as np

np.fromfile("metrics.bin", np.dtype([{_FIELDS}]))
```"""


class Writer(Protocol):
    """The record of a run; what a call has written survives if the process is killed.

    All texts are written without secrets.
    """

    @property
    def path(self) -> Path | None:
        """The folder of the record; None if nothing is written."""

    def write_readme(self, tag: str, desc: str = "") -> None:
        """Write the README with title and description; an existing one is not changed."""

    def write_config(
        self,
        written: Sequence[SourceFile],
        expanded_text: str,
        format: str,
        provenance: Mapping[str, object],
    ) -> None:
        """Write the config as written with its bases, expanded, and the provenance.

        Args:
            written: The files, the main one first; their relative paths stay.
            expanded_text: The config with all defaults, in ``format``.
            format: ``yaml``, ``toml`` or ``json``.
            provenance: The result of ``collect_provenance``.
        """

    def write_observed(self, data: Mapping[str, object]) -> None:
        """Write the arguments that each constructor received."""

    def write_run(self, info: Mapping[str, object]) -> None:
        """Write the facts at the start: project, tag, desc, seed, command, machine, ..."""

    def go_back(self, *, checkpoint: str, origin: int, step: int, points: object) -> int:
        """Begin a new attempt after a rollback; returns its number.

        Args:
            checkpoint: The name of the checkpoint.
            origin: The attempt that saved it.
            step: The step of the checkpoint.
            points: The number of points when it was saved; later ones are no longer current.
        """

    def write_status(self, status: Status, **fields: object) -> None:
        """Write the status; keeps the fields of earlier calls, and syncs points first."""

    def write_result(self, result: Mapping[str, object]) -> None:
        """Write the result of the run."""

    def log(self, points: Mapping[str, float], step: int) -> None:
        """Append one point for each metric at a step, all or none."""

    @property
    def num_points(self) -> int:
        """The number of points; a checkpoint stores it for a later rollback."""

    def sync(self) -> None:
        """Sync all points to disk; any thread may call it."""

    def event(self, kind: str, **data: object) -> None:
        """Append an event, such as a stage, a warning or a saved checkpoint."""

    def require_lease(self) -> None:
        """Raise LeaseLostError if the folder is gone or belongs to another process now."""

    def set_on_loss(self, call: Callable[[str], None]) -> None:
        """Set what is called when the lease is lost, with the reason, from another thread."""

    def set_on_stop_request(self, call: Callable[[str], None]) -> None:
        """Set what is called when the run is asked to stop, with the reason; as above."""

    def close(self) -> None:
        """Sync and close all files; a second call does nothing."""


@final
class RunWriter(Writer):
    """Writes into the folder of one run; one thread of one process may use it.

    After it lost the lease, each call raises LeaseLostError and writes nothing.
    """

    def __init__(self, folder: RunFolder, *, attempt: int = 0, lease: Lease | None = None) -> None:
        self.folder = folder
        self.attempt = attempt
        self._lease = lease
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
        if not (self.path / README_FILE).exists():
            write_readme(self.path, RunReadme(tag, desc, _HOW_TO_READ))

    @override
    def require_lease(self) -> None:
        if self._lease is not None:
            self._lease.require()

    @override
    def set_on_loss(self, call: Callable[[str], None]) -> None:
        if self._lease is not None:
            self._lease.on_loss = call

    @override
    def set_on_stop_request(self, call: Callable[[str], None]) -> None:
        if self._lease is not None:
            self._lease.on_stop_request = call

    @override
    @raising_record_errors()
    def write_config(
        self,
        written: Sequence[SourceFile],
        expanded_text: str,
        format: str,
        provenance: Mapping[str, object],
    ) -> None:
        self.require_lease()
        config_dir = self.folder.config_dir
        sources = []
        for source, name in zip(written, _place_sources(written), strict=True):
            copy = config_dir / name
            durable.make_dir(copy.parent, exist_ok=True)
            redacted.write_text(copy, source.text)
            sources.append({"file": name, "path": source.path})
        redacted.write_json(config_dir / "sources.json", sources)
        redacted.write_text(config_dir / f"expanded.{format}", expanded_text)
        durable.write_json(config_dir / "provenance.json", redact_provenance(provenance))

    @override
    @raising_record_errors()
    def write_observed(self, data: Mapping[str, object]) -> None:
        self.require_lease()
        redacted.write_json(self.folder.config_dir / "observed.json", data)

    @override
    @raising_record_errors()
    def write_run(self, info: Mapping[str, object]) -> None:
        self.require_lease()
        always = {"format": RECORD_FORMAT, "id": self.folder.id, "created": utc_now()}
        redacted.write_run(self.path / "run.json", {**always, **info})

    @override
    @raising_record_errors()
    def go_back(self, *, checkpoint: str, origin: int, step: int, points: object) -> int:
        self.require_lease()
        path = self.path / "run.json"
        run: Any = durable.decode_json(durable.read_bytes(path))
        number = self.attempt + 1
        changed = attempts.add_rollback_attempt(
            run, number, checkpoint=checkpoint, origin=origin, step=step, points=points
        )
        redacted.write_run(path, changed)
        self.attempt = number
        return number

    @override
    @raising_record_errors()
    def write_status(self, status: Status, **fields: object) -> None:
        self.require_lease()
        now = utc_now()
        if not self._status:
            self._status = {"reason": "", "step": 0, "epoch": 0, "started": now}
        owner = describe_process(os.getpid()) | {"attempt": self.attempt}
        ended = now if status in ENDED_STATUSES else None
        self._status |= {"status": status, **owner, "updated": now, "ended": ended, **fields}
        self._metrics.sync()  # readers must find the points of the step in the status
        redacted.write_json(self.path / "status.json", self._status)

    @override
    @raising_record_errors()
    def write_result(self, result: Mapping[str, object]) -> None:
        self.require_lease()
        redacted.write_json(self.path / "result.json", {"attempt": self.attempt, **result})

    @override
    def log(self, points: Mapping[str, float], step: int) -> None:
        if self._lease is not None and self._lease.loss:
            self._lease.require()
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
        if self._lease is not None and self._lease.loss:
            self._lease.require()
        if self._events is None:
            self._events = durable.open_lines(self.path / "events.jsonl")
        attempt = {"attempt": self.attempt} if self.attempt else {}
        self._events.append(
            redacted.encode_line({"time": utc_now(), "kind": kind, **attempt, **data})
        )

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
    """Writes nothing."""

    path = None
    num_points = 0

    @override
    def go_back(self, *, checkpoint: str, origin: int, step: int, points: object) -> int:
        return origin + 1

    def _ignore(self, *_: object, **__: object) -> None:
        pass

    write_readme = write_config = write_observed = write_run = write_status = _ignore
    write_result = log = sync = event = require_lease = set_on_loss = _ignore
    set_on_stop_request = close = _ignore


def _read_status(folder: Path) -> dict[str, object]:
    """The status of earlier attempts, without the reason for the end of the last one."""
    status = durable.find_object(folder / "status.json")
    return status and {**status, "reason": ""}


def _place_sources(sources: Sequence[SourceFile]) -> list[str]:
    # Relative to their common folder, so that `$BASE: ../base.yaml` finds the copy.
    paths = [os.path.normpath(source.path.absolute()) for source in sources]
    top = os.path.commonpath([str(Path(path).parent) for path in paths]) if paths else ""
    return [str(Path("written", os.path.relpath(path, top))) for path in paths]
