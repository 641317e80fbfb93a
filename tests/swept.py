"""Sweeps whose trials are made-up run records, so that no process has to train."""

from __future__ import annotations

import itertools
import math
import os
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import forked
from epochal.config import FrozenSource
from epochal.launch.jobs.frozen_job import FrozenCode, FrozenJob
from epochal.launch.pool.backlog import JobEnd
from epochal.launch.pool.devices import ANY_DEVICE, DeviceRequest
from epochal.launch.pool.executor import Executor, JobHandle, JobStart
from epochal.launch.pool.local_executor import _environment, format_job_command
from epochal.records import RunFolder, RunWriter
from epochal.registry.project import Project
from epochal.sweep.backlog import SweepBacklog
from epochal.sweep.sweep_folder import SweepFolder, create_sweep
from pooled import ScriptedHandle

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

    from epochal.launch.pool.backlog import WaitingJob

BASE = "tag: toy\nmonitor: -val/loss\noptim: {lr: 1.0}\nmodel: {width: 4}\nseed: 7\n"
SPACE = "  space: {optim.lr: {min: 0.1, max: 10.0, log: true}}\n"
_numbers = itertools.count()


def new_sweep(
    folder: Path,
    section: str = "  method: random\n  trials: 3\n",
    *,
    space: str = SPACE,
    choices: Mapping[str, Any] | None = None,
) -> SweepFolder:
    """A sweep of a config that is only read, never run."""
    runs = folder / "runs"
    runs.mkdir(parents=True, exist_ok=True)
    path = folder / "toy.yaml"
    text = f"{BASE}sweep:\n{section}{space}"
    job = FrozenJob(
        name="toy",
        source=FrozenSource(path, {str(path): text}, str(path.parent)),
        choices=choices or {},
        code=FrozenCode(project=Project(folder)),
        log_dir=runs,
        cwd=folder,
        python=sys.executable,
    )
    return create_sweep(runs, lambda code: job, name="toy", command="epochal sweep toy.yaml")


def leave_run(
    waiting: WaitingJob,
    values: Sequence[float] = (1.0,),
    status: Any = "finished",
    *,
    metric: str = "val/loss",
    is_reported: bool = True,
    **result: object,
) -> Path:
    """Write the record that a trial would leave, and report its folder."""
    facts = waiting.job.choices["trial"]
    folder = RunFolder(waiting.job.log_dir / "toy" / "toy" / f"20261116-120000-{next(_numbers):04}")
    (folder.path / "config").mkdir(parents=True)
    writer = RunWriter(folder)
    parent = {"run": facts["sweep"], "kind": "trial"}
    writer.write_run({"tag": "toy", "runner": "train", "trial": facts, "parent": parent})
    (folder.path / "config" / "expanded.json").write_text("{}")
    for step, value in enumerate(values):
        writer.log({metric: value}, step)
    writer.write_status(status, **({"reason": result["reason"]} if "reason" in result else {}))
    if status != "running":
        writer.write_result({"status": status, **result})
    writer.close()
    if is_reported:
        waiting.run_file.write_text(str(folder.path))
    return folder.path


def finish(backlog: SweepBacklog, waiting: WaitingJob, *values: float, **more: Any) -> None:
    """End a trial that the backlog gave out."""
    path = leave_run(waiting, values or (1.0,), **more)
    end_job(backlog, waiting, JobEnd(code=0, run_dir=path))


def end_job(backlog: SweepBacklog, waiting: WaitingJob, end: JobEnd) -> None:
    """Report the end of a process, as the pool does."""
    backlog.end(waiting, end)
    if waiting.lock is not None:
        waiting.lock.release()


@contextmanager
def coordinator(folder: SweepFolder) -> Iterator[SweepBacklog]:
    """A process that runs a sweep; at the end of the block it is gone, and its processes, too."""
    lock = folder.lock()
    backlog = SweepBacklog(folder)
    taken: list[WaitingJob] = []
    take = backlog.take

    def remember(request: DeviceRequest = ANY_DEVICE) -> WaitingJob | None:
        waiting = take(request)
        taken.extend([] if waiting is None else [waiting])
        return waiting

    backlog.take = remember  # type: ignore[method-assign]
    try:
        yield backlog
    finally:
        lock.release()
        for waiting in taken:
            if waiting.lock is not None:
                waiting.lock.release()


def work(backlog: SweepBacklog, count: int | None = None) -> list[dict[str, Any]]:
    """Run trials that end at once with the square of log10(lr); gives the facts of each."""
    done: list[dict[str, Any]] = []
    while count is None or len(done) < count:
        waiting = backlog.take() if backlog.peek() is not None else None
        if waiting is None:
            break
        facts = waiting.job.choices["trial"]
        finish(backlog, waiting, math.log10(facts["values"]["optim.lr"]) ** 2)
        done.append(facts)
    return done


class ForkedExecutor(Executor):
    """Trains each trial at once, in a forked process that needs no time for imports."""

    def __init__(self, imports: Sequence[str] = ()) -> None:
        pass

    def describe(self, start: JobStart) -> str:
        return " ".join(format_job_command(start))

    def submit(self, start: JobStart) -> JobHandle:
        _, _, *words = format_job_command(start)  # without the interpreter and its option
        environment = {**os.environ, **_environment(start)}
        done = forked.run(*words, cwd=start.job.cwd, env=environment)
        start.log.write_text(done.stdout + done.stderr)
        return ScriptedHandle(done.returncode)

    def close(self) -> None:
        pass
