"""Reads the record in a run folder, even a damaged one, and facts that combine several files."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, final

from epochal import durable
from epochal.errors import ConfigError, RecordError
from epochal.records.folder.folder import FOLDS_DIR, RunFolder
from epochal.records.folder.provenance import (
    apply_attempt_overrides,
    apply_task_values,
    get_newest_origins,
)
from epochal.records.folder.readme import UNTITLED, parse_readme
from epochal.records.layout.attempts import ROLLBACK, Attempt, read_attempts
from epochal.records.layout.coerce import as_count, as_finite_numbers, as_text, iter_leaves
from epochal.records.layout.lease import is_owner_alive
from epochal.records.layout.os_errors import describe_os_error
from epochal.records.layout.run_status import ACTIVE_STATUSES
from epochal.records.metrics.points import (
    Library,
    read_json_lines,
    read_metric_points,
    read_series_names,
    to_dataframe,
)
from epochal.records.metrics.system_figures import read_system
from epochal.records.metrics.time_spent import parse_time_spent
from epochal.text.formatting import format_count

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

    import numpy as np
    from numpy.typing import NDArray

    from epochal.records.metrics.points import Points
    from epochal.records.metrics.system_figures import SystemFigures
    from epochal.records.metrics.time_spent import TimeSpent


@final
@dataclass(frozen=True, slots=True)
class RunSummary:
    """One run as a list of runs shows it."""

    path: Path
    id: str
    project: str
    tag: str
    status: str
    """As written, or ``lost`` if its process is gone, or ``damaged`` if it cannot be read."""

    reason: str
    step: int
    epoch: int
    started: str
    """ISO-8601 in UTC, as ``ended``; empty when unknown."""

    ended: str
    result: Mapping[str, Any] = field(repr=False)
    """What ``result.json`` holds; empty before the end."""

    damage: tuple[str, ...]
    """One line for each missing or unreadable file."""

    runner: str = ""
    """The runner, such as ``train`` or ``test``; empty when unknown."""

    attempt: int = 0
    """How often it was resumed or rolled back."""

    rollbacks: int = 0
    """How often it was rolled back to an earlier state."""


class Point(NamedTuple):
    """One value of a metric."""

    step: int
    value: float


@final
@dataclass(frozen=True)
class RunRecord:
    """Everything that a run recorded; large parts are read on first use."""

    path: Path
    summary: RunSummary
    run: Mapping[str, Any] = field(repr=False)
    """``run.json``, written at the start: project, tag, seed, machine, ..."""

    status: Mapping[str, Any] = field(repr=False)
    """``status.json``, but ``status["status"]`` is ``lost`` if the process is gone."""

    result: Mapping[str, Any] = field(repr=False)

    @cached_property
    def readme(self) -> str:
        """The README of the run; empty if there is none."""
        return durable.find_text(self.path / "README.md")

    @cached_property
    def expanded(self) -> Mapping[str, Any]:
        """The config with all defaults, as plain values; empty if it is lost."""
        return _read_expanded(self.path)

    @cached_property
    def provenance(self) -> Mapping[str, Any]:
        """Where each value was set, newest first, by dotted key; empty if it is lost.

        Includes overrides that were given when the run was resumed, and values of the task.
        """
        written = _read_mapping(self.path / "config" / "provenance.json", [])
        written = apply_task_values(written, self.run.get("task_values"))
        attempts = self.attempts
        if not written or not attempts or not attempts[-1].overrides:
            return written
        return apply_attempt_overrides(written, self.expanded, attempts)

    @property
    def attempts(self) -> list[Attempt]:
        """The attempts, in order."""
        return read_attempts(self.run)

    @cached_property
    def points(self) -> Points:
        """All metric points, and counts of damaged ones."""
        return read_metric_points(self.path)

    @cached_property
    def events(self) -> list[dict[str, Any]]:
        """The events, in order, without damaged lines."""
        return read_json_lines(self.path / "events.jsonl")[0]

    @cached_property
    def system(self) -> SystemFigures:
        """The use of CPU, memory, disk and GPUs over time."""
        return read_system(self.path)

    @property
    def times(self) -> dict[str, float]:
        """Seconds of each part of its time, even while it runs; empty when unknown."""
        return as_finite_numbers(self.result.get("times")) or as_finite_numbers(
            self.status.get("times")
        )

    @property
    def device_time(self) -> dict[str, float]:
        """Measurements of its steps on a GPU; empty without any."""
        return as_finite_numbers(self.result.get("device_time"))

    @property
    def folds(self) -> list[RunRecord]:
        """The runs of a cross validation that have started; empty for other runs."""
        found = [path for path in (self.path / FOLDS_DIR).glob("*") if path.name.isdecimal()]
        return [read_folder(path) for path in sorted(found, key=lambda path: int(path.name))]

    @property
    def damage(self) -> tuple[str, ...]:
        """One line for each missing or damaged part."""
        damaged_events = read_json_lines(self.path / "events.jsonl")[1]
        events = (f"events.jsonl: {format_count(damaged_events, 'damaged line')} left out",)
        return (*self.summary.damage, *self.points.damage, *(events if damaged_events else ()))

    def metric_names(self) -> list[str]:
        """The names of all recorded metrics, sorted."""
        return sorted(set(read_series_names(self.path)[0].values()))

    def series(self, name: str) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
        """The steps and values of one metric; raises RecordError if there is none."""
        return self.points.series(name)

    def frame(self, *names: str, library: Library = "pandas") -> Any:  # noqa: ANN401 - of that library
        """A DataFrame with a row per step and a column per metric; by default all metrics."""
        return to_dataframe(self.points, names, library)

    def last(self, name: str) -> Point:
        """The point of ``name`` at the highest step."""
        return _points_of(self, name)[-1]

    def best(self, name: str, mode: Literal["min", "max"]) -> Point:
        """The first best point of ``name``; NaN only if all values are."""
        points = _points_of(self, name)
        numbers = [point for point in points if point.value == point.value]
        pick = max if mode == "max" else min
        return pick(numbers or points[:1], key=lambda point: point.value)


def _points_of(record: RunRecord, name: str) -> list[Point]:
    steps, values = record.series(name)
    if not len(steps):
        raise RecordError(
            f"{record.path}: no readable point of {name!r}\n"
            "  the rows are damaged; the text log may still show the values"
        )
    return [Point(*pair) for pair in zip(steps.tolist(), values.tolist(), strict=True)]


def read_folder(path: Path) -> RunRecord:
    """The record in the folder of a run; ``summary.damage`` says what is missing."""
    damage: list[str] = []
    run = _read_mapping(path / "run.json", damage)
    status = _read_mapping(path / "status.json", damage)
    state = as_text(status.get("status")) or "damaged"
    has_ended = state not in (*ACTIVE_STATUSES, "damaged")
    result = _read_mapping(path / "result.json", damage if has_ended else [])
    if as_count(result.get("attempt")) != as_count(status.get("attempt")) and status:
        result = {}  # that of an earlier process, which was resumed
    if has_ended and result.get("metrics"):
        # A metric in the result was recorded before.
        files = (path / "metrics.bin", path / "series.jsonl")
        damage += [f"{file.name}: missing" for file in files if not file.exists()]
    if state not in ("starting", "damaged"):
        damage += find_missing_configs(path, has_begun=bool(status.get("step")))
    if not has_ended and "pid" in status and not is_owner_alive(path, status):
        state = "lost"
    summary = RunSummary(
        path=path,
        id=path.name or path.resolve().name,
        project=as_text(run.get("project")),
        tag=as_text(run.get("tag")) or path.resolve().parent.name,
        status=state,
        reason=as_text(status.get("reason")),
        step=as_count(status.get("step")),
        epoch=as_count(status.get("epoch")),
        started=as_text(status.get("started")) or as_text(run.get("created")),
        ended=as_text(status.get("ended")),
        result=result,
        damage=tuple(damage),
        runner=as_text(run.get("runner")),
        attempt=as_count(status.get("attempt")),
        rollbacks=sum(one.cause == ROLLBACK for one in read_attempts(run)),
    )
    if status:
        status = {**status, "status": state}
    return RunRecord(path, summary, run, status, result)


def _read_mapping(path: Path, damage: list[str]) -> Mapping[str, Any]:
    try:
        value = durable.decode_json(durable.read_bytes(path))
    except FileNotFoundError:
        damage.append(f"{path.name}: missing")
    except OSError as error:
        damage.append(f"{path.name}: cannot be read: {describe_os_error(error)}")
    except (ValueError, RecursionError):
        damage.append(f"{path.name}: not valid JSON")
    else:
        if isinstance(value, dict):
            return value
        damage.append(f"{path.name}: not a mapping")
    return {}


def _read_expanded(path: Path) -> Mapping[str, Any]:
    from epochal.config import load

    found = find_expanded_config(path)
    try:
        value = {} if found is None else load(found).root.to_public()
    except (ConfigError, OSError):
        return {}
    return value if isinstance(value, dict) else {}


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


def describe_unwritten_checkpoints(record: RunRecord) -> str:
    """How many checkpoints could not be written, and which one is the newest; empty if all were."""
    failed = sum(one.get("kind") == "checkpoint_failed" for one in record.events)
    if not failed:
        return ""
    saved = [one for one in record.events if one.get("kind") == "checkpoint_saved"]
    newest = (
        f"the newest is of step {as_count(saved[-1].get('step')):,}" if saved else "there is none"
    )
    return f"{format_count(failed, 'checkpoint')} could not be written; {newest}"


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
    """The type and first line of the error in a result, or why it diverged; empty without one."""
    kind, message = result.get("exception_type"), str(result.get("message") or "")
    text = f"{kind}: {message}" if kind else message
    return text.partition("\n")[0].removesuffix(": ")


_SUFFIXES = {".yaml", ".toml", ".json"}


def find_expanded_config(run_dir: Path) -> Path | None:
    """The config with all defaults; None if it is missing."""
    found = sorted((run_dir / "config").glob("expanded.*"))
    return next((path for path in found if path.suffix in _SUFFIXES and _is_regular(path)), None)


def _is_regular(path: Path) -> bool:
    """Whether a path is a file, and no link to one."""
    return path.is_file() and not path.is_symlink()


def find_missing_configs(run_dir: Path, *, has_begun: bool) -> Iterator[str]:
    """One line for each missing config file; ``has_begun`` if its components were built."""
    folder = run_dir / "config"
    try:
        names = {entry.name for entry in folder.iterdir()}
    except OSError:
        yield "config: missing"
        return
    if find_expanded_config(run_dir) is None:
        odd = [f"expanded{suffix}" for suffix in sorted(_SUFFIXES) if f"expanded{suffix}" in names]
        yield f"config/{odd[0]}: not a regular file" if odd else "config/expanded.*: missing"
    if "provenance.json" not in names:
        yield "config/provenance.json: missing"
    # A cross validation builds components in its folds only.
    if has_begun and "observed.json" not in names and not (run_dir / FOLDS_DIR).is_dir():
        yield "config/observed.json: missing"
    for name in _written_config_names(folder):
        if not _is_regular(folder / name):
            yield f"config/{name}: missing"


def _written_config_names(folder: Path) -> list[str]:
    """The copies of the user's files, as listed in ``sources.json``."""
    try:
        sources = durable.decode_json(durable.read_bytes(folder / "sources.json"))
    except (OSError, ValueError, RecursionError):
        sources = None
    entries = sources if isinstance(sources, list) else []
    names = [entry.get("file") for entry in entries if isinstance(entry, dict)]
    return [name for name in names if isinstance(name, str)]


Mode = Literal["min", "max"]

MONITOR_KEYS = ("monitor", "monitor.metric", "monitor.mode")
"""Config keys: ``+val/acc`` under one of the first two, or ``max`` under the last."""


def get_monitor_mode(settings: Mapping[str, object]) -> Mode:
    """Which way is better by the values of ``MONITOR_KEYS``; by default ``min``, as for a loss."""
    whole, metric, mode = (settings.get(key) for key in MONITOR_KEYS)
    sign = str(metric or whole or "")[:1]
    if sign in ("+", "-"):
        return "max" if sign == "+" else "min"
    return "max" if mode == "max" else "min"


_SMALLER_IS_BETTER = ("loss", "err")


def infer_mode(name: str, monitors: Sequence[tuple[str, Mode | None]]) -> Mode | None:
    """The mode of a monitored metric, also in other splits; ``min`` for losses."""
    last = name.rpartition("/")[2]
    exact = {mode for known, mode in monitors if known == name}
    alike = {mode for known, mode in monitors if known and known.rpartition("/")[2] == last}
    found = exact or alike
    if len(found) == 1:
        return found.pop()
    return "min" if not found and last in _SMALLER_IS_BETTER else None
