"""What is told of a run by several of its files: tag, purpose, time, error, logs."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Any

from epochal.records.folder.folder import RunFolder
from epochal.records.folder.readme import UNTITLED, parse_readme
from epochal.records.layout.coerce import as_finite_numbers, as_text

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from epochal.records.folder.record import RunRecord


def tag_of(record: RunRecord) -> str:
    """The title of a run's page, which people may change; else the tag that it was given."""
    title = parse_readme(record.readme).title
    return title if title not in ("", UNTITLED) else record.summary.tag


def desc_of(record: RunRecord) -> str:
    """What a run is for by its page; what was said at its start if it has none."""
    return parse_readme(record.readme).text if record.readme else as_text(record.run.get("desc"))


def seconds_of(record: RunRecord) -> float | None:
    """How long a run worked, without the time between attempts; None when unknown.

    One that ended before its clock was started counts from its start to its end. Of one that was
    killed before it told anything, nobody knows.
    """
    for source in (record.result, record.status):
        if seconds := as_finite_numbers(source).get("seconds"):
            return seconds
    last = record.summary.ended or as_text(record.status.get("updated"))
    try:
        begin = datetime.fromisoformat(record.summary.started)
        seconds = max(0.0, (datetime.fromisoformat(last) - begin).total_seconds())
    except (ValueError, TypeError):  # the record is damaged
        return None
    return seconds if record.summary.ended or seconds else None


def step_of(record: RunRecord) -> int:
    """The last step that is known of: one that was killed may have logged more than it told.

    So may one whose status cannot be read.
    """
    if record.summary.status not in ("lost", "damaged"):
        return record.summary.step
    from epochal.records.metrics.summary import summarise_series  # needs numpy

    series = summarise_series(record.path).values()
    return max([record.summary.step, *[one.last_step for one in series]])


def find_logs(record: RunRecord) -> dict[int, Path]:
    """The text logs of a run's processes, by rank."""
    options = record.expanded.get("record")
    name = options.get("log_file") if isinstance(options, dict) else None
    return RunFolder(record.path, name if isinstance(name, str) else "run.log").find_logs()


def describe_error(result: Mapping[str, Any]) -> str:
    """Type and first line of the error that a result names; empty if it names none."""
    kind, message = result.get("exception_type"), str(result.get("message") or "")
    return f"{kind}: {message}".partition("\n")[0].removesuffix(": ") if kind else ""
