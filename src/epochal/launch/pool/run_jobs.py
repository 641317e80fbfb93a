"""Runs a list of frozen jobs in a pool, then removes what they needed only to run."""

from __future__ import annotations

import os
import time
from contextlib import suppress
from dataclasses import dataclass
from itertools import takewhile
from pathlib import Path
from typing import TYPE_CHECKING, final

from epochal import durable
from epochal.errors import INTERRUPTED_EXIT_CODE, PREEMPTED_EXIT_CODE
from epochal.launch.pool.backlog import JobList, never_restart
from epochal.launch.pool.pool import Pool
from epochal.records.layout.process import describe_process, is_owner_gone

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from epochal.launch.pool.backlog import JobEnd, Restart, WaitingJob
    from epochal.launch.pool.devices import Leases
    from epochal.launch.pool.executor import Executor

_LOCK = "pool.lock"
_ABANDONED_SECONDS = 3600.0


@final
@dataclass(frozen=True, kw_only=True)
class PoolResult:
    """How the jobs of a pool ended."""

    ends: Mapping[int, JobEnd]
    """By the key of the job; jobs that were not started are missing."""

    exit_code: int
    """That of the first job that failed, or of the signal that ended the pool."""


def exit_code_of(pool: Pool, codes: Iterable[int]) -> int:
    """The exit code of a pool whose jobs ended with ``codes``."""
    if pool.was_interrupted:
        return INTERRUPTED_EXIT_CODE
    if pool.mode in ("stopping", "killing"):
        return PREEMPTED_EXIT_CODE
    return next((code if code > 0 else 128 - code for code in codes if code), 0)


def run_jobs(
    jobs: Sequence[WaitingJob],
    executor: Executor,
    leases: Leases,
    *,
    show: Callable[[Pool], None] = lambda pool: None,
    restart: Restart = never_restart,
) -> PoolResult:
    """Run jobs that were frozen together, each in its own process; ``restart`` as in JobList."""
    batch = jobs[0].file.parent
    _remove_abandoned(batch.parent)
    lock = durable.try_lock(batch / _LOCK, describe_process(os.getpid()), is_gone=is_owner_gone)
    backlog = JobList(jobs, restart=restart)
    pool = Pool(backlog, executor, leases, show=show)
    try:
        pool.run()
    finally:
        if lock is not None:
            lock.release()
        _clean(jobs, backlog.ends)
    codes = [backlog.ends[key].code for key in sorted(backlog.ends)]
    return PoolResult(ends=backlog.ends, exit_code=exit_code_of(pool, codes))


def keep_output(log: Path, run_dir: Path | None) -> Path:
    """Move the output of a job's processes into the folder of its run; returns its place."""
    if run_dir is None or not (run_dir / "logs").is_dir():
        return log
    numbers = ("", *(f".{number}" for number in range(1, 1000)))
    places = (run_dir / "logs" / f"output{number}.log" for number in numbers)
    place = next((one for one in places if not one.exists()), None)
    if place is None:
        return log
    try:
        log.replace(place)
    except OSError:  # another file system
        return log
    return place


def find_last_line(log: Path) -> str:
    """The last line of an output that is not empty, or the message in the box at its end."""
    try:
        data = log.read_bytes()[-8192:]
    except OSError:
        return ""
    lines = [line.strip() for line in data.decode("utf-8", "replace").splitlines()]
    if boxed := _find_boxed(lines):
        return boxed
    return next((line for line in reversed(lines) if any(map(str.isalnum, line))), "")


def _find_boxed(lines: Sequence[str]) -> str:
    """The first paragraph of the box that failed runs draw around their message; or nothing."""
    ends = [place for place, line in enumerate(lines) if line[:1] in ("╭", "╰")]
    if len(ends) < 2 or lines[ends[-1]][0] != "╰" or any(lines[ends[-1] + 1 :]):
        return ""
    texts = [line.strip("│")[1:].rstrip() for line in lines[ends[-2] + 1 : ends[-1]]]
    message = list(takewhile(lambda text: text and not text.startswith(" "), texts))
    return " ".join(message)


def _clean(jobs: Sequence[WaitingJob], ends: Mapping[int, JobEnd]) -> None:
    """Remove the folder of the jobs, except for the output of failures without a run folder."""
    batch, kept = jobs[0].file.parent, set[Path]()
    for one in jobs:
        end = ends.get(one.key)
        if end is not None and keep_output(one.log, end.run_dir) == one.log and end.code != 0:
            kept.add(one.log)
    if not kept:
        remove_batch(batch)
        return
    for entry in set(batch.iterdir()) - kept:
        if entry.is_dir():
            _remove(entry)
        else:
            with suppress(OSError):
                entry.unlink()


def remove_batch(batch: Path) -> None:
    """Remove a folder of frozen jobs; what it links to stays."""
    _remove(batch)


def _remove(folder: Path) -> None:
    with suppress(OSError):
        durable.remove_tree(folder, "ended")


def _remove_abandoned(jobs_dir: Path) -> None:
    """Remove the folders of pools that were killed."""
    for path in jobs_dir.glob(f"*/{_LOCK}"):
        with suppress(OSError):
            if time.time() - path.stat().st_mtime < _ABANDONED_SECONDS:
                continue
            lock = durable.try_lock(path, {}, is_gone=is_owner_gone)
            if lock is not None:
                lock.release()
                _remove(path.parent)
