"""Composes mails about a run, from facts in memory or from its record."""

from __future__ import annotations

import os
import platform
import time
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, final

from epochal import durable
from epochal.errors import DIVERGED, RecordError
from epochal.records.folder.crash import find_crash
from epochal.records.folder.reader import describe_error, seconds_of, step_of
from epochal.records.folder.resume_command import find_resume_command
from epochal.records.layout.lease import HEARTBEAT_FILE
from epochal.records.layout.process import utc_now
from epochal.records.layout.run_status import COMPLETED_STATUSES
from epochal.records.layout.stop_request import STOP_REQUESTED
from epochal.records.mail.mailbox import Kind, Mail, make_id
from epochal.records.metrics.points import TRAIN_PREFIX, is_probe
from epochal.records.secrets import redact, redact_tree
from epochal.text.formatting import format_seconds, format_value

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from epochal.records.folder.reader import RunRecord

END = "end"
"""The event that all mails about the end of an attempt share."""

_LOG_LINES = 20
_OUTCOMES: Mapping[str, str] = {
    "out_of_disk": "out of disk",
    "gave_up": "given up",
    "sweep_done": "sweep done",
}
_MAX_SUBJECT = 160
_MAX_METRICS = 12
_MAX_FIGURES = 3
_SHOWN_RUN_ID = 4  # last characters of a run's id, enough to name it in a command
_TAIL_BYTES = 1 << 15
_LIVE_FILES = (HEARTBEAT_FILE, "status.json", "metrics.bin", "events.jsonl")
_SENDER = ("project", "variant", "runner", "desc")


@final
@dataclass(frozen=True, kw_only=True)
class MailContent:
    """The facts about a run from which a mail is composed."""

    kind: Kind
    tag: str
    run: str = ""
    """Its folder, relative to the folder of all runs; empty if it has none."""

    folder: str = ""
    """Its absolute folder on this machine."""

    attempt: int = 0
    event: str = ""
    """What the mail is about; mails of one attempt about the same event have one id."""

    sender: Mapping[str, Any] = field(default_factory=dict)
    """``project``, ``variant``, ``runner``, ``started``, ``host`` and ``desc``."""

    seconds: float | None = None
    step: int | None = None
    epoch: int | None = None
    monitor: str = ""
    best: float | None = None
    metrics: Mapping[str, float] = field(default_factory=dict)
    why: str = ""
    """The reason in a few words: the error, why it was given up, where it stalled."""

    traceback: str = ""
    log: str = ""
    """The last lines of its text log."""


def compose(content: MailContent) -> Mail:
    """The mail with this content, without secrets."""
    names = ("seconds", "step", "epoch", "monitor", "best", "metrics", "attempt")
    facts = {"error": content.why, **{name: getattr(content, name) for name in names}}
    sender = {"tag": content.tag, "folder": content.folder, **content.sender}
    # Records are free of secrets, but content may come from memory.
    facts, sender = redact_tree(facts), redact_tree(sender)
    moment = utc_now()
    return Mail(
        # Runs without a folder differ by time.
        id=make_id(content.run or moment, content.attempt, content.event),
        kind=content.kind,
        subject=redact(_subject(content)),
        text=redact("\n".join(_lines(content)) + "\n"),
        time=moment,
        run=content.run,
        sender=sender,
        facts=facts,
    )


def _display_name(content: MailContent) -> str:
    """Tag, variant, and the end of the run's id."""
    variant = content.sender.get("variant")
    run_id = content.run.rpartition("/")[2]
    words = [f"{content.tag}/{variant}" if variant else content.tag, run_id[-_SHOWN_RUN_ID:]]
    return " ".join(word for word in words if word)


def _subject(content: MailContent) -> str:
    figures = [
        _display_name(content),
        "" if content.seconds is None else format_seconds(content.seconds),
        _best(content) or _figures(content),
        content.why.partition("\n")[0],
    ]
    outcome = _OUTCOMES.get(content.kind, content.kind)
    text = f"{outcome}: {', '.join(figure for figure in figures if figure)}"
    text = " ".join(text.split())  # a header has one line
    return text if len(text) <= _MAX_SUBJECT else f"{text[: _MAX_SUBJECT - 1]}…"


def _best(content: MailContent) -> str:
    name = f"{content.monitor} " if content.monitor else ""
    return "" if content.best is None else f"best {name}{format_value(float(content.best))}"


def _figures(content: MailContent) -> str:
    """The metrics of a run that has no best value, such as a test."""
    if content.kind != "finished":
        return ""
    found = [
        (name, value)
        for name, value in content.metrics.items()
        if not name.startswith(TRAIN_PREFIX) and not is_probe(name)
    ]
    return ", ".join(f"{name} {format_value(value)}" for name, value in found[:_MAX_FIGURES])


def _lines(content: MailContent) -> Iterator[str]:
    run_id = content.run.rpartition("/")[2]
    yield f"{_display_name(content)}: {_OUTCOMES.get(content.kind, content.kind)}"
    yield from (f"  {line}" for line in str(content.sender.get("desc") or "").splitlines())
    yield ""
    length = [
        "" if content.epoch is None else f"epoch {content.epoch}",
        "" if content.step is None else f"step {content.step}",
        "" if content.seconds is None else format_seconds(content.seconds),
    ]
    yield f"  length   {', '.join(one for one in length if one)}"
    if content.best is not None:
        yield f"  best     {_best(content).removeprefix('best ')}"
    shown = [item for item in content.metrics.items() if not is_probe(item[0])][:_MAX_METRICS]
    if shown:
        figures = (f"{name} {format_value(value)}" for name, value in shown)
        yield f"  results  {'  '.join(figures)}"
    for index, line in enumerate(content.why.splitlines()):
        yield f"  {'why' if not index else '':<9}{line}"
    yield f"  machine  {content.sender.get('host') or platform.node()}"
    if run_id:
        yield f"  folder   {content.folder}"
        yield f"  next     epochal show {run_id}"
        if content.kind in ("lost", "failed", "diverged", "gave_up", "out_of_disk"):
            yield from (f"           {one}" for one in [_resume_command(content)] if one)
    for title, text in (("traceback", content.traceback), ("last log lines", content.log)):
        if text.strip():
            yield f"\n{title}:\n\n{text.rstrip()}"


def _resume_command(content: MailContent) -> str:
    return find_resume_command(Path(content.folder)) if content.folder else ""


def mail_kind(status: str, reason: str) -> Kind | None:
    """The mail for an ended run; None if a user ended it or it will be resumed."""
    if reason.startswith(STOP_REQUESTED):
        return None
    if status in COMPLETED_STATUSES:
        return "finished"
    if status == DIVERGED:
        return "diverged"
    if status == "failed":
        return "out_of_disk" if reason == "disk_full" else "failed"
    return "lost" if status == "lost" else None


def describe_run(
    record: RunRecord, kind: Kind, *, run: str, monitor: str = "", mode: str = "", why: str = ""
) -> MailContent:
    """The content of the mail about the end of a run, read from its record.

    ``run`` is its folder, relative to the folder of all runs. Without ``why``, the reason is the
    error, or the last sign of life.
    """
    summary, result = record.summary, record.result
    metrics, traceback = result.get("metrics"), str(result.get("traceback") or "")
    return MailContent(
        kind=kind,
        tag=summary.tag,
        run=run,
        folder=str(record.path.absolute()),
        attempt=summary.attempt,
        event=END,
        sender={
            **{name: record.run.get(name) for name in _SENDER},
            "started": summary.started,
            "host": record.status.get("host"),
        },
        seconds=seconds_of(record),
        step=step_of(record),
        epoch=summary.epoch,
        monitor=monitor,
        best=_read_best(record, monitor, mode),
        metrics=metrics if isinstance(metrics, dict) else {},
        why=why or _reason(record, kind),
        traceback=traceback,
        log="" if kind == "finished" else last_lines(record.path / "logs", without=traceback),
    )


def last_lines(path: Path, *, without: str = "") -> str:
    """The last lines of a text log, or of the newest log in a folder; empty if there is none.

    The traceback ``without``, which the mail already has, and what follows are left out.
    """
    try:
        if path.is_dir():
            logs = sorted(path.rglob("*.log"), key=lambda log: log.stat().st_mtime)
            return last_lines(logs[-1], without=without) if logs else ""
        with durable.open_regular(path) as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(0, size - _TAIL_BYTES))
            text = file.read().decode("utf-8", "replace")
    except OSError:
        return ""
    before, found, _ = text.rpartition(redact(without).strip() or "\0")
    lines = before.splitlines()[:-1] if found else text.splitlines()
    return "\n".join(lines[-_LOG_LINES:])


def _reason(record: RunRecord, kind: Kind) -> str:
    if kind == "lost":
        if crash := find_crash(record.path):
            return f"its process crashed: {crash.fault} in {crash.lines}"
        return f"its process died, last sign of life {_last_sign_of_life(record):%b %d, %H:%M}"
    reason = record.summary.reason if record.summary.status == "stopped" else ""
    return describe_error(record.result) or (reason if kind == "finished" else "")


def _last_sign_of_life(record: RunRecord) -> datetime:
    times = []
    for name in _LIVE_FILES:
        with suppress(OSError):
            times.append((record.path / name).stat().st_mtime)
    return datetime.fromtimestamp(max(times, default=time.time())).astimezone()


def _read_best(record: RunRecord, monitor: str, mode: str) -> float | None:
    best = record.result.get("best")
    if isinstance(best, int | float):
        return float(best)
    if not monitor or record.result:
        return None
    try:
        return record.best(monitor, "max" if mode == "max" else "min").value
    except RecordError:  # no such point yet
        return None
