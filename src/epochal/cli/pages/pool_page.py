"""What a pool shows: a live table on a terminal, else a line for each start and end."""

from __future__ import annotations

import shutil
from collections import Counter
from typing import TYPE_CHECKING, Self, final

from epochal.cli.draw.live import LiveLines
from epochal.cli.draw.text_table import format_table
from epochal.config.source_file import display_name
from epochal.errors import INTERRUPTED_EXIT_CODE, PREEMPTED_EXIT_CODE
from epochal.launch.pool.pool import plan_start
from epochal.launch.pool.run_jobs import find_last_line
from epochal.records.find import find_record
from epochal.records.folder.reader import describe_error
from epochal.records.layout.run_status import ACTIVE_STATUSES
from epochal.records.metrics.points import TRAIN_PREFIX
from epochal.text.command import epochal_command
from epochal.text.escape import escape_control
from epochal.text.formatting import format_count, format_seconds, format_value

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from epochal.launch.pool.backlog import JobEnd, WaitingJob
    from epochal.launch.pool.devices import Leases
    from epochal.launch.pool.executor import Executor
    from epochal.launch.pool.pool import Pool, PoolEntry

_HEADER = ("#", "experiment", "state", "device", "step", "time", "result")
_MAX_ROWS = 40
_OTHER_LINES = 5
"""Lines of a page beside the rows of its table."""

_ACTIVE = ("running", "stopping", "pending")
_MAX_METRICS = 3
_STATES = {PREEMPTED_EXIT_CODE: "preempted", INTERRUPTED_EXIT_CODE: "interrupted"}
HINTS = {
    "running": "Ctrl-C: finish the running jobs, and start no more",
    "draining": "starting no more jobs; Ctrl-C again: save and stop the running ones",
    "stopping": "the running jobs save and end; Ctrl-C again kills them",
    "killing": "killing the running jobs",
}


@final
class PoolPage:
    """Shows a pool while it works; call ``show`` with it, inside ``with``."""

    def __init__(self, jobs: Sequence[WaitingJob] = ()) -> None:
        self._jobs = {one.key: one for one in jobs}
        self._begun: list[PoolEntry] = []
        self._told: list[PoolEntry] = []
        self._ended_rows: dict[PoolEntry, tuple[str, ...]] = {}
        self._has_told_busy = False
        self._mode = "running"
        self._live = LiveLines()

    def __enter__(self) -> Self:
        self._live.__enter__()
        return self

    def __exit__(self, *_: object) -> None:
        self._live.__exit__()

    def show(self, pool: Pool) -> None:
        """Show the current state."""
        if self._live.is_shown:
            self._live.draw(self._lines(pool))
            return
        for entry in (*pool.ended, *pool.running):
            if entry not in self._begun:
                self._begun.append(entry)
                _tell("started", entry.waiting, f"on {entry.device}", self._total())
            self._tell_end(entry)
        if (busy := _describe_busy(pool)) and not self._has_told_busy:
            self._has_told_busy = True
            print(busy, flush=True)
        if pool.mode != self._mode:
            self._mode = pool.mode
            print(HINTS[pool.mode], flush=True)

    def _tell_end(self, entry: PoolEntry) -> None:
        if entry in self._told or entry.end is None or entry.ended is None:
            return
        self._told.append(entry)
        seconds = format_seconds(entry.ended - entry.started)
        rest = f"after {seconds}" + _after_colon(describe_end(entry.waiting, entry.end))
        _tell(name_end(entry.end), entry.waiting, rest, self._total())

    def _total(self) -> str:
        return f" of {len(self._jobs)}" if self._jobs else ""

    def _lines(self, pool: Pool) -> Iterable[str]:
        self._ended_rows = {
            entry: self._ended_rows.get(entry) or _to_row(entry, pool) for entry in pool.ended
        }
        rows = [*self._ended_rows.values(), *(_to_row(entry, pool) for entry in pool.running)]
        begun = {int(row[0]) for row in rows}
        rows += [
            (str(key), one.job.title, "waiting", "", "", "", "")
            for key, one in self._jobs.items()
            if key not in begun
        ]
        most = min(_MAX_ROWS, max(shutil.get_terminal_size().lines - _OTHER_LINES, 3))
        rows = _choose_rows(sorted(rows, key=lambda row: int(row[0])), most)
        failed = count_failed(entry.end.code for entry in pool.ended if entry.end is not None)
        counts = [
            f"{len(pool.running)} running",
            f"{pool.backlog.count_waiting()} waiting",
            f"{len(pool.ended)} ended",
            *([f"{failed} failed"] if failed else []),
        ]
        yield format_table(_HEADER, rows)
        yield ", ".join(counts)
        if busy := _describe_busy(pool):
            yield busy
        yield HINTS[pool.mode]


def _choose_rows(rows: list[tuple[str, ...]], most: int) -> list[tuple[str, ...]]:
    """The rows that matter most: running jobs, the next ones, and the last that ended."""
    active = [row for row in rows if row[2] in _ACTIVE]
    waiting = [row for row in rows if row[2] == "waiting"]
    ended = [row for row in rows if row not in active and row not in waiting]
    kept = [*active, *ended[-max(most // 3, 1) :], *waiting, *reversed(ended)]
    chosen = list(dict.fromkeys(kept))[:most]
    return [row for row in rows if row in chosen]


def _describe_busy(pool: Pool) -> str:
    """Why no job of the pool can start; empty if one runs."""
    if pool.running or not pool.leases.obstacles or pool.mode != "running":
        return ""
    busy = ", ".join(f"{name} ({why})" for name, why in pool.leases.obstacles.items())
    return f"waiting for a device: {busy}"


def _to_row(entry: PoolEntry, pool: Pool) -> tuple[str, ...]:
    seconds = (pool.clock() if entry.ended is None else entry.ended) - entry.started
    record = find_record(entry.find_run_dir() if entry.end is None else entry.end.run_dir)
    waits = "" if entry.handle is None else entry.handle.waits_for
    state = "stopping" if entry.was_stopped else "pending" if waits else "running"
    return (
        str(entry.waiting.key),
        entry.waiting.job.title,
        state if entry.end is None else name_end(entry.end),
        entry.device,
        "" if record is None else str(record.summary.step),
        format_seconds(seconds),
        waits if entry.end is None else describe_end(entry.waiting, entry.end),
    )


def _tell(what: str, waiting: WaitingJob, rest: str, total: str) -> None:
    text = f"{what:<9} {waiting.key}{total}: {waiting.job.title} {rest}"
    print(escape_control(text), flush=True)


def _after_colon(text: str) -> str:
    return f": {text}" if text else ""


def count_failed(codes: Iterable[int]) -> int:
    """How many jobs failed; a run that was saved can be continued, and did not fail."""
    return sum(code != 0 and code not in _STATES for code in codes)


def name_end(end: JobEnd) -> str:
    """The state of a job that has ended, in one word."""
    record = find_record(end.run_dir)
    if record is not None and end.code >= 0 and record.summary.status not in ACTIVE_STATUSES:
        return record.summary.status
    if end.code == 0:
        return "finished"
    return "killed" if end.code < 0 else _STATES.get(end.code, "failed")


def describe_end(waiting: WaitingJob, end: JobEnd) -> str:
    """The metrics of a run, or why it failed, in one line."""
    record = find_record(end.run_dir)
    if end.code < 0:
        return f"killed by signal {-end.code}"
    if record is None:
        return "" if end.code == 0 else find_last_line(waiting.log)
    if end.code == PREEMPTED_EXIT_CODE:
        step = record.summary.step
        return f"saved at step {step}" if step else "ended before its first step"
    if end.code != 0:
        return describe_error(record.result)
    found = record.result.get("metrics")
    metrics = found if isinstance(found, dict) else {}
    names = [name for name in metrics if not name.startswith(TRAIN_PREFIX)] or list(metrics)
    monitor = str(record.run.get("monitor") or "").lstrip("+-")
    names.sort(key=lambda name: name != monitor)
    return ", ".join(f"{name} {format_value(metrics[name])}" for name in names[:_MAX_METRICS])


def print_ends(jobs: Sequence[WaitingJob], ends: Mapping[int, JobEnd]) -> None:
    """Print how all jobs ended, in the order in which they were submitted."""
    rows, notes = [], []
    for one in jobs:
        end = ends.get(one.key)
        if end is None:
            rows.append((str(one.key), one.job.title, "not started", "", ""))
            continue
        folder = "" if end.run_dir is None else display_name(end.run_dir)
        rows.append((str(one.key), one.job.title, name_end(end), folder, describe_end(one, end)))
        if end.code == PREEMPTED_EXIT_CODE and end.run_dir is not None:
            notes.append(f"continue {one.key}: {epochal_command()} resume {end.run_dir.name}")
        if end.code != 0 and one.log.is_file():
            notes.append(f"output of {one.key}: {display_name(one.log)}")
    print()
    print(format_table(("#", "experiment", "state", "run", "result"), rows))
    states = Counter(row[2] for row in rows)
    counts = ", ".join(f"{count} {state}" for state, count in states.items())
    print("\n".join([*notes, f"{format_count(len(jobs), 'run')}: {counts}"]), flush=True)


def print_plan(jobs: Sequence[WaitingJob], executor: Executor, leases: Leases) -> None:
    """Print what would start where, without starting anything."""
    held = []
    for one in jobs:
        lease = leases.acquire(one.request)
        where = leases.find_misfit(one.request) or "waits for a device"
        where = where if lease is None else f"starts on {lease.device.name}"
        print(escape_control(f"{one.key}: {one.job.title} {where}"))
        if lease is not None:
            held.append(lease)
            print(escape_control(f"  cd {one.job.cwd}"))
            print(escape_control(f"  {executor.describe(plan_start(one, lease))}"))
    for lease in held:
        leases.release(lease)
    print(f"{format_count(len(jobs), 'run')}, {len(held)} at once; nothing was started")
