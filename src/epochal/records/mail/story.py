"""The story of a run as its record tells it, for mails that others than the run write."""

from __future__ import annotations

import os
import time
from contextlib import suppress
from datetime import datetime
from typing import TYPE_CHECKING

from epochal.errors import RecordError
from epochal.records.facts import describe_error, seconds_of, step_of
from epochal.records.heartbeat import FILE_NAME as HEARTBEAT
from epochal.records.mail.compose import LOG_LINES, Story
from epochal.records.secrets import redact
from epochal.records.writer import DONE

if TYPE_CHECKING:
    from pathlib import Path

    from epochal.records.mail.letter import Kind
    from epochal.records.read import RunRecord

END = "end"
"""What all mails about the end of an attempt are about."""

_TAIL_BYTES = 1 << 15
_SIGNS = (HEARTBEAT, "status.json", "metrics.bin", "events.jsonl")
_SENDER = ("project", "variant", "runner", "desc")


def kind_of(status: str, reason: str) -> Kind | None:
    """The mail that an ended run is worth; None if somebody was there, or it will go on."""
    if status in DONE:
        return "diverged" if reason == "diverged" else "finished"
    if status == "failed":
        return "out_of_disk" if reason == "disk_full" else "failed"
    return "lost" if status == "lost" else None


def tell(
    record: RunRecord, kind: Kind, *, run: str, monitor: str = "", mode: str = "", why: str = ""
) -> Story:
    """The story of a run's end.

    Args:
        record: What the run left.
        kind: How it ended.
        run: Its folder, from the folder of all runs.
        monitor: The metric that decides.
        mode: Which way is better, ``min`` or ``max``.
        why: A few words; by default the error, or when it was last heard of.
    """
    summary, result = record.summary, record.result
    metrics, traceback = result.get("metrics"), str(result.get("traceback") or "")
    return Story(
        kind=kind,
        tag=summary.tag,
        run=run,
        folder=str(record.path.absolute()),
        attempt=summary.attempt,
        what=END,
        sender={
            **{name: record.run.get(name) for name in _SENDER},
            "started": summary.started,
            "host": record.status.get("host"),
        },
        seconds=seconds_of(record),
        step=step_of(record),
        epoch=summary.epoch,
        monitor=monitor,
        best=_best(record, monitor, mode),
        metrics=metrics if isinstance(metrics, dict) else {},
        why=why or _why(record, kind),
        traceback=traceback,
        log="" if kind == "finished" else last_lines(record.path / "logs", without=traceback),
    )


def last_lines(path: Path, *, without: str = "") -> str:
    """The last lines of a text log, or of the newest one in a folder; empty if there is none.

    Args:
        path: The log, or the folder of logs.
        without: A traceback that is told already, and is left out with what follows it.
    """
    try:
        if path.is_dir():
            logs = sorted(path.rglob("*.log"), key=lambda log: log.stat().st_mtime)
            return last_lines(logs[-1], without=without) if logs else ""
        with path.open("rb") as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(0, size - _TAIL_BYTES))
            text = file.read().decode("utf-8", "replace")
    except OSError:
        return ""
    before, found, _ = text.rpartition(redact(without).strip() or "\0")
    lines = before.splitlines()[:-1] if found else text.splitlines()
    return "\n".join(lines[-LOG_LINES:])


def _why(record: RunRecord, kind: Kind) -> str:
    if kind == "lost":
        return f"its process is gone, last heard of {_last_sign(record):%b %d, %H:%M}"
    reason = record.summary.reason if record.summary.status == "stopped" else ""
    return describe_error(record.result) or (reason if kind == "finished" else "")


def _last_sign(record: RunRecord) -> datetime:
    times = []
    for name in _SIGNS:
        with suppress(OSError):
            times.append((record.path / name).stat().st_mtime)
    return datetime.fromtimestamp(max(times, default=time.time())).astimezone()


def _best(record: RunRecord, monitor: str, mode: str) -> float | None:
    best = record.result.get("best")
    if isinstance(best, int | float):
        return float(best)
    if not monitor or record.result:
        return None
    try:
        return record.best(monitor, "max" if mode == "max" else "min").value
    except RecordError:  # no such point yet
        return None
