"""Gives the jobs of a queue to a pool, tries failed ones again, and finds those of dead workers."""

from __future__ import annotations

import json
import os
import time
from datetime import datetime
from typing import TYPE_CHECKING, Any, final

from typing_extensions import override

from epochal import durable
from epochal.errors import PREEMPTED_EXIT_CODE, RecordError
from epochal.launch.jobs.frozen_job import read_job
from epochal.launch.jobs.seal import is_sealed
from epochal.launch.pool.backlog import Backlog, JobEnd, WaitingJob
from epochal.launch.pool.devices import ANY_DEVICE, DeviceRequest
from epochal.launch.pool.pool import read_run_file
from epochal.launch.pool.run_jobs import find_last_line, keep_output
from epochal.launch.restart_policy import FINAL_EXIT_CODES, SUCCESS
from epochal.records.find import find_record
from epochal.records.folder.folder import Parent
from epochal.records.folder.reader import describe_error, find_expanded_config
from epochal.records.layout.process import describe_process, is_owner_gone
from epochal.records.layout.run_status import COMPLETED_STATUSES, EVALUATIONS
from epochal.records.layout.stop_request import STOP_REQUESTED

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator
    from pathlib import Path

    from epochal.launch.jobs.frozen_job import FrozenJob
    from epochal.launch.queue.queue import Queue, QueuedJob
    from epochal.records.folder.reader import RunRecord

FIRST_DELAY_SECONDS = 30.0
MAX_DELAY_SECONDS = 3600.0
_SHARED_VARIABLES = ("OMP_NUM_THREADS", "MKL_NUM_THREADS")
"""Variables of the first start that later ones must have, too: they change sums on the CPU."""

_RECOVER_SECONDS = 15.0


def get_delay(failures: int) -> float:
    """Seconds until a job starts again after so many failures; doubled each time."""
    return float(min(FIRST_DELAY_SECONDS * 2.0 ** max(failures - 1, 0), MAX_DELAY_SECONDS))


@final
class QueueBacklog(Backlog):
    """The jobs of a queue, for one worker.

    A job that runs has a lock file, which its process inherits. If the lock of a running job is
    free, its worker and its process are gone, and the job waits again.

    Args:
        queue: The queue.
        clock: Gives the seconds since 1970.
    """

    def __init__(self, queue: Queue, *, clock: Callable[[], float] = time.time) -> None:
        self._queue = queue
        self._clock = clock
        self._begun = clock()
        self._recovered = 0.0

    @override
    def peek(self) -> DeviceRequest | None:
        if self._clock() - self._recovered >= _RECOVER_SECONDS:
            self._recovered = self._clock()
            self.recover()
        ready = next(self._iter_ready(), None)
        return None if ready is None else _read_request(ready)

    @override
    def take(self, request: DeviceRequest = ANY_DEVICE) -> WaitingJob | None:
        for job in self._iter_ready():
            if _read_request(job).num_processes != request.num_processes:
                continue
            lock = _try_lock(job)
            if lock is None:
                if not job.file.is_file():  # else its last process is still ending
                    error = f"its files are gone: {job.file.parent}"
                    values = {"state": "failed", "error": error, "ended": self._clock()}
                    self._queue.update(job.id, ["waiting"], **values)
                continue
            waiting = self._claim(job.id, lock)
            if waiting is not None:
                return waiting
            lock.release()
        return None

    def _claim(self, job_id: int, lock: durable.HeldLock) -> WaitingJob | None:
        """The job as it is now, marked as running; None if it cannot start any more."""
        job = self._queue.get(job_id)
        if job.state != "waiting" or self._queue.find_obstacle(job) is not None:
            return None
        try:
            frozen = _read_own_job(job)
        except RecordError as error:
            text = str(error).partition("\n")[0]
            self._queue.update(job_id, ["waiting"], state="failed", error=text, ended=self._clock())
            return None
        is_mine = self._queue.update(
            job_id, ["waiting"], state="running", started=self._clock(), starts=job.starts + 1
        )
        if not is_mine:
            return None
        waiting = _to_waiting(job, frozen, lock)
        if waiting.resume is None:
            waiting.run_file.unlink(missing_ok=True)
        return waiting

    @override
    def begin(self, waiting: WaitingJob, device: str, environment: dict[str, str]) -> None:
        kept = {name: environment[name] for name in _SHARED_VARIABLES if name in environment}
        self._queue.update(
            waiting.key, ["running"], device=device, environment=json.dumps(kept), error=""
        )

    @override
    def end(self, waiting: WaitingJob, end: JobEnd) -> None:
        self._note_end(self._queue.get(waiting.key), end)

    def _note_end(self, job: QueuedJob, end: JobEnd) -> None:
        now, run_dir = self._clock(), end.run_dir or job.run_dir
        record = find_record(run_dir)
        is_complete = (
            record is not None
            and record.summary.status in COMPLETED_STATUSES
            and not _ended_before_job(job, record)
        )
        error = _describe(job, end, record)
        values: dict[str, object] = {"run_dir": str(run_dir or ""), "code": end.code}
        if end.code == SUCCESS or is_complete:  # it may be killed when nothing is left to do
            values |= {"state": "finished", "ended": now, "error": ""}
        elif job.is_unwanted:
            values |= {"state": "removed", "ended": now, "is_unwanted": 0}
        elif end.was_stopped or end.code == PREEMPTED_EXIT_CODE:
            values |= {"state": "waiting"}
        elif end.code in FINAL_EXIT_CODES or job.failures >= job.retries:
            values |= {"state": "failed", "ended": now, "error": error}
        else:
            delay = get_delay(job.failures + 1)
            values |= {"state": "waiting", "not_before": now + delay, "error": error}
            values["failures"] = job.failures + 1
        if values["state"] != "waiting":
            keep_output(job.log, run_dir)
        self._queue.update(job.id, ["running"], **values)
        self._queue.forget_ended()

    def recover(self) -> None:
        """Requeue jobs whose worker and process have died; note those that finished."""
        for job in self._queue.list_jobs("running"):
            if not job.file.is_file():
                values = {"state": "failed", "error": "its files are gone", "ended": self._clock()}
                self._queue.update(job.id, ["running"], **values)
                continue
            lock = _try_lock(job)
            if lock is None:
                continue
            try:
                run_dir = read_run_file(job.file.with_suffix(".run"))
                current = self._queue.get(job.id)
                if current.state == "running":
                    end = JobEnd(code=PREEMPTED_EXIT_CODE, run_dir=run_dir, was_stopped=True)
                    self._note_end(current, end)
            finally:
                lock.release()

    @override
    def is_done(self) -> bool:
        self.recover()
        waiting = self._queue.list_jobs("waiting")
        obstacles = self._queue.find_obstacles(waiting)
        is_stuck = all(job.id in obstacles and obstacles[job.id].is_lasting for job in waiting)
        return is_stuck and not any(map(is_orphan, self._queue.list_jobs("running")))

    @override
    def count_waiting(self) -> int:
        return len(self._queue.list_jobs("waiting"))

    @override
    def find_unwanted(self) -> Collection[int]:
        return {job.id for job in self._queue.list_jobs("running") if job.is_unwanted}

    @override
    def wants_drain(self) -> bool:
        drained = self._queue.read_setting("drained")
        return bool(drained) and float(drained) >= self._begun

    def _iter_ready(self) -> Iterator[QueuedJob]:
        waiting = self._queue.list_jobs("waiting")
        obstacles = self._queue.find_obstacles(waiting)
        yield from (job for job in waiting if job.id not in obstacles)


def list_ready(queue: Queue) -> list[WaitingJob]:
    """The jobs that a worker would start now, in order; nothing is changed."""
    waiting = queue.list_jobs("waiting")
    obstacles = queue.find_obstacles(waiting)
    return [_to_waiting(job, _read_own_job(job)) for job in waiting if job.id not in obstacles]


def _read_request(job: QueuedJob) -> DeviceRequest:
    """What a job needs to start."""
    try:
        num_processes = read_job(job.file).num_processes
    except RecordError:  # it fails when it is taken
        num_processes = 1
    return DeviceRequest(preferred=job.preferred, num_processes=num_processes)


def _read_own_job(job: QueuedJob) -> FrozenJob:
    """The frozen job; RecordError if it is damaged, or this user did not add it."""
    frozen = read_job(job.file)
    if not is_sealed(job.file, job.seal):
        raise RecordError(
            f"job {job.id} was not added by you, or was changed since\n"
            f"  it would execute code: look at {job.file}, and add it again if you trust it"
        )
    return frozen


def _to_waiting(
    job: QueuedJob, frozen: FrozenJob, lock: durable.HeldLock | None = None
) -> WaitingJob:
    record = find_record(job.run_dir)
    may_resume = can_resume if frozen.is_resume else can_auto_resume
    is_resumed = record is not None and may_resume(record)
    parent = None if is_resumed or job.run_dir is None else Parent(job.run_dir.name, "retried")
    if frozen.parent and job.run_dir is None:
        parent = Parent(frozen.parent, "rerun")
    return WaitingJob(
        key=job.id,
        job=frozen,
        file=job.file,
        preferred=job.preferred,
        resume=job.run_dir if is_resumed else None,
        parent=parent,
        lock=lock,
        environment={k: v for k, v in job.environment.items() if k in _SHARED_VARIABLES},
    )


def can_auto_resume(record: RunRecord) -> bool:
    """Whether a run can be resumed automatically: an unfinished training with a config."""
    if record.summary.runner in EVALUATIONS or record.summary.status in COMPLETED_STATUSES:
        return False
    return find_expanded_config(record.path) is not None


def can_resume(record: RunRecord) -> bool:
    """Whether a run can be resumed on request: also one that was asked to stop."""
    summary = record.summary
    if summary.status == "stopped" and summary.reason.startswith(STOP_REQUESTED):
        is_training = summary.runner not in EVALUATIONS
        return is_training and find_expanded_config(record.path) is not None
    return can_auto_resume(record)


def _ended_before_job(job: QueuedJob, record: RunRecord) -> bool:
    """Whether the run ended before the job that resumes it was started."""
    try:
        is_resume, ended = read_job(job.file).is_resume, str(record.summary.ended)
        return is_resume and datetime.fromisoformat(ended).timestamp() < (job.started or 0.0)
    except (RecordError, ValueError):
        return False


def _describe(job: QueuedJob, end: JobEnd, record: RunRecord | None) -> str:
    """Why a process ended, in one line."""
    if end.code < 0:
        return f"killed by signal {-end.code}"
    error = find_last_line(job.log) if record is None else describe_error(record.result)
    return error or f"ended with code {end.code}"


def read_worker(job: QueuedJob) -> dict[str, Any]:
    """The worker that runs a job, as ``describe_process`` describes it; empty if none does."""
    facts = durable.read_holder(_lock_path(job))
    facts.pop("job", None)
    return facts


def is_orphan(job: QueuedJob) -> bool:
    """Whether a job runs without its worker, which has ended; its process may still save."""
    return job.state == "running" and is_owner_gone(durable.read_holder(_lock_path(job)))


def _lock_path(job: QueuedJob) -> Path:
    return job.file.with_suffix(".lock")


def _try_lock(job: QueuedJob) -> durable.HeldLock | None:
    try:
        facts = describe_process(os.getpid()) | {"job": job.id}
        return durable.try_lock(_lock_path(job), facts, is_gone=is_owner_gone)
    except OSError:  # its folder is gone, or belongs to another user
        return None
