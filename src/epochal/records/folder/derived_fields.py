"""Facts about a run that combine several of its files: tag, description, time, monitor, error."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime
from typing import TYPE_CHECKING, Any

from epochal.records.folder.folder import RunFolder
from epochal.records.folder.provenance import get_newest_origins
from epochal.records.folder.readme import UNTITLED, parse_readme
from epochal.records.layout.coerce import as_finite_numbers, as_text, iter_leaves
from epochal.records.metrics.monitor import get_monitor_mode
from epochal.records.metrics.time_spent import parse_time_spent

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from epochal.records.folder.record import RunRecord
    from epochal.records.metrics.monitor import Mode
    from epochal.records.metrics.time_spent import TimeSpent


def tag_of(record: RunRecord) -> str:
    """The title of the run's README, which users may edit; by default the tag from the config."""
    title = parse_readme(record.readme).title
    return title if title not in ("", UNTITLED) else record.summary.tag


def desc_of(record: RunRecord) -> str:
    """The description in the run's README; without a README, the one from the config."""
    return parse_readme(record.readme).text if record.readme else as_text(record.run.get("desc"))


def seconds_of(record: RunRecord) -> float | None:
    """The seconds that a run worked, without the time between attempts; None when unknown.

    A run that ended before its clock started counts from its start to its end.
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
    """The last known step.

    A run that was killed, or whose status is damaged, may have logged later steps than its status.
    """
    if record.summary.status not in ("lost", "damaged"):
        return record.summary.step
    from epochal.records.metrics.summary import summarise_series  # needs numpy

    series = summarise_series(record.path).values()
    return max([record.summary.step, *[one.last_step for one in series]])


def read_time_spent(record: RunRecord) -> TimeSpent:
    """The time of a run by part; of a lost run, up to its last status."""
    spent = parse_time_spent(record.result if record.result.get("times") else record.status)
    return replace(spent, killed=spent.killed + (record.summary.status == "lost"))


def find_monitor(record: RunRecord) -> tuple[str, Mode | None]:
    """The monitored metric of a run and which way is better; empty without one."""
    name = record.run.get("monitor")
    if not isinstance(name, str):
        return "", None
    origins = get_newest_origins(record.provenance)
    values = {key: origin.get("value") for key, origin in origins.items()}
    return name, get_monitor_mode(values or dict(iter_leaves(record.expanded)))


def find_logs(record: RunRecord) -> dict[int, Path]:
    """The text logs of a run's processes, by rank."""
    options = record.expanded.get("record")
    name = options.get("log_file") if isinstance(options, dict) else None
    return RunFolder(record.path, name if isinstance(name, str) else "run.log").find_logs()


def describe_error(result: Mapping[str, Any]) -> str:
    """The type and first line of the error in a result; empty without one."""
    kind, message = result.get("exception_type"), str(result.get("message") or "")
    return f"{kind}: {message}".partition("\n")[0].removesuffix(": ") if kind else ""
