"""The queue of a project: add, list, reorder, pause and remove jobs."""

from __future__ import annotations

import json
import time
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, final

from epochal.errors import RecordError, suggest
from epochal.launch.jobs.seal import seal_job
from epochal.launch.pool.run_jobs import remove_batch
from epochal.records.find import read_run
from epochal.records.layout.run_status import COMPLETED_STATUSES, ENDED_STATUSES
from epochal.records.project.project_database import get_database_path, open_database, writing
from epochal.records.secrets.text_redaction import redact

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Callable, Collection, Sequence

    from epochal.launch.jobs.frozen_job import FrozenJob
    from epochal.launch.pool.backlog import WaitingJob

JobState = Literal["waiting", "running", "finished", "failed", "removed"]
ENDED: tuple[JobState, ...] = ("finished", "failed", "removed")

_ORDER = (
    "ORDER BY CASE state WHEN 'running' THEN 1 WHEN 'waiting' THEN 2 ELSE 0 END, "
    "CASE state WHEN 'waiting' THEN -priority ELSE 0 END, "
    "CASE state WHEN 'waiting' THEN place ELSE coalesce(ended, started) END, id"
)

MAX_ENDED = 200
_MAX_TITLE = 80
"""How many ended jobs the queue remembers."""


@final
@dataclass(frozen=True, kw_only=True)
class QueuedJob:
    """One job of the queue."""

    id: int
    title: str
    """The config file and the variant."""

    file: Path
    """The file of the frozen job."""

    seal: str
    """What proves that this user added the job."""

    state: JobState
    priority: int
    """A job with a higher priority starts first."""

    after: tuple[str, ...]
    """What must succeed first: ids of jobs, and folders of runs."""

    preferred: str
    retries: int
    """How often a failure is tried again."""

    failures: int
    starts: int
    not_before: float
    """The earliest time of the next start, in seconds since 1970."""

    is_paused: bool
    is_unwanted: bool
    added: float
    started: float | None
    ended: float | None
    device: str
    environment: dict[str, str]
    run_dir: Path | None
    code: int | None
    """The exit code of its last process."""

    error: str
    """Why it failed, or why it cannot start, in one line."""

    @property
    def log(self) -> Path:
        """The file with the output of its processes, while they run."""
        return self.file.with_suffix(".log")


@final
@dataclass(frozen=True)
class Obstacle:
    """Why a job cannot start now."""

    text: str
    is_lasting: bool = False
    """Whether it stays until a user does something."""


@final
class Queue:
    """The queue of a folder of runs, in ``.epochal/project.db``.

    Each call is one transaction, so that any number of processes may use it.

    Args:
        runs_dir: The folder of all runs.
        clock: Gives the seconds since 1970.
    """

    def __init__(self, runs_dir: Path, *, clock: Callable[[], float] = time.time) -> None:
        self.runs_dir = runs_dir.absolute()
        self._clock = clock

    @property
    def exists(self) -> bool:
        """Whether a job was ever added."""
        return get_database_path(self.runs_dir).is_file()

    def add(
        self,
        jobs: Sequence[WaitingJob],
        *,
        priority: int = 0,
        after: Sequence[str] = (),
        retries: int = 0,
        run_dir: Path | None = None,
    ) -> list[QueuedJob]:
        """Add frozen jobs, to be started in this order.

        Args:
            jobs: From ``freeze_configs``.
            priority: Higher ones start first.
            after: Jobs and runs that must succeed first: ids of jobs, names of runs.
            retries: How often a failure is tried again.
            run_dir: The run that the jobs resume.

        Raises:
            RecordError: There is no such job or run.
        """
        needed = json.dumps([self.resolve(name) for name in after])
        seals = {one.key: seal_job(one.file) for one in jobs}
        shared = {"priority": priority, "after": needed, "retries": retries, "added": self._clock()}
        ids: list[int | None] = []
        with self._open() as connection, writing(connection):
            (last,) = connection.execute("SELECT coalesce(max(place), 0) FROM jobs").fetchone()
            for number, one in enumerate(jobs, start=1):
                values = shared | {
                    "title": _title_of(one.job),
                    "file": str(one.file),
                    "seal": seals[one.key],
                    "place": last + number,
                    "preferred": one.preferred,
                    "run_dir": "" if run_dir is None else str(run_dir),
                }
                names, marks = ", ".join(values), ", ".join("?" * len(values))
                statement = f"INSERT INTO jobs ({names}) VALUES ({marks})"
                ids.append(connection.execute(statement, tuple(values.values())).lastrowid)
        return [self.get(one) for one in ids if one is not None]

    def list_jobs(self, *states: JobState) -> list[QueuedJob]:
        """The jobs in these states, by default all: ended ones first, then as they will start."""
        if not self.exists:
            return []
        wanted = f"WHERE state IN ({', '.join('?' * len(states))})" if states else ""
        with self._open() as connection:
            rows = connection.execute(f"SELECT * FROM jobs {wanted} {_ORDER}", states).fetchall()
        return [_to_job(row) for row in rows]

    def get(self, job_id: int) -> QueuedJob:
        """One job.

        Raises:
            RecordError: There is no such job.
        """
        with self._open() as connection:
            row = connection.execute("SELECT * FROM jobs WHERE id = ?", (job_id,)).fetchone()
        if row is None:
            known = [str(job.id) for job in self.list_jobs()]
            hint = suggest(str(job_id), known) or "`epochal queue list` shows all"
            raise RecordError(f"there is no job {job_id} in the queue\n  {hint}")
        return _to_job(row)

    def move_to_top(self, job_id: int) -> QueuedJob:
        """Let a waiting job start next."""
        self._require(job_id, "waiting")
        with self._open() as connection, writing(connection):
            priority, place = connection.execute(
                "SELECT max(priority), min(place) FROM jobs WHERE state = 'waiting'"
            ).fetchone()
            connection.execute(
                "UPDATE jobs SET priority = ?, place = ? WHERE id = ?",
                (priority, place - 1, job_id),
            )
        return self.get(job_id)

    def move(self, job_id: int, before: int | None) -> QueuedJob:
        """Let a waiting job start before another waiting one, or after all others."""
        for one in (job_id, before):
            if one is not None:
                self._require(one, "waiting")
        with self._open() as connection, writing(connection):
            rows = connection.execute(f"SELECT * FROM jobs WHERE state = 'waiting' {_ORDER}")
            order = [(row["id"], row["priority"]) for row in rows.fetchall() if row["id"] != job_id]
            ids = [one for one, _ in order]
            place = ids.index(before) if before in ids else len(order)
            # Its priority is that of its neighbour, or the order would not be kept.
            near = order[place : place + 1] or order[-1:]
            if near:
                values = (near[0][1], job_id)
                connection.execute("UPDATE jobs SET priority = ? WHERE id = ?", values)
            for number, one in enumerate([*ids[:place], job_id, *ids[place:]]):
                connection.execute("UPDATE jobs SET place = ? WHERE id = ?", (number, one))
        return self.get(job_id)

    def remove(self, job_id: int) -> QueuedJob:
        """Remove a waiting job; ask a running one to save and end."""
        self._require(job_id, "waiting", "running")
        with self._open() as connection, writing(connection):
            connection.execute(
                "UPDATE jobs SET is_unwanted = 1 WHERE id = ? AND state = 'running'", (job_id,)
            )
            connection.execute(
                "UPDATE jobs SET state = 'removed', ended = ? WHERE id = ? AND state = 'waiting'",
                (self._clock(), job_id),
            )
        self.forget_ended()
        return self.get(job_id)

    def set_paused(self, is_paused: bool, job_id: int | None = None) -> None:
        """Pause or continue one waiting job, or the whole queue; running jobs continue."""
        if job_id is None:
            self._set("is_paused", "1" if is_paused else "0")
            return
        self._require(job_id, "waiting")
        with self._open() as connection, writing(connection):
            connection.execute(
                "UPDATE jobs SET is_paused = ? WHERE id = ?", (int(is_paused), job_id)
            )

    @property
    def is_paused(self) -> bool:
        """Whether no job of the queue starts."""
        return self.read_setting("is_paused") == "1"

    def drain(self) -> None:
        """Let all present workers end after their running jobs."""
        self._set("drained", repr(self._clock()))

    def read_setting(self, name: str) -> str:
        """A setting of the queue; empty if it was never set."""
        if not self.exists:
            return ""
        with self._open() as connection:
            row = connection.execute(
                "SELECT value FROM settings WHERE name = ?", (name,)
            ).fetchone()
        return "" if row is None else str(row[0])

    def find_obstacle(self, job: QueuedJob) -> Obstacle | None:
        """Why a waiting job cannot start now; None if it can."""
        return self.find_obstacles([job]).get(job.id)

    def find_obstacles(self, jobs: Sequence[QueuedJob]) -> dict[int, Obstacle]:
        """Why waiting jobs cannot start now, by id; those that can are missing."""
        is_paused, now = self.is_paused, self._clock()
        needed = {name for job in jobs for name in job.after}
        states = self._read_states() if needed else {}
        known = {
            name: _check_job(name, states.get(name)) if name.isdecimal() else _check_run(Path(name))
            for name in needed
        }
        found: dict[int, Obstacle] = {}
        for job in jobs:
            obstacles = [one for name in job.after if (one := known[name]) is not None]
            if job.is_paused or is_paused:
                found[job.id] = Obstacle("paused", is_lasting=True)
            elif obstacles:
                lasting = (one for one in obstacles if one.is_lasting)
                found[job.id] = next(lasting, obstacles[0])
            elif job.not_before > now:
                found[job.id] = Obstacle(f"starts again in {job.not_before - now:.0f} s")
        return found

    def _read_states(self) -> dict[str, str]:
        with self._open() as connection:
            rows = connection.execute("SELECT id, state FROM jobs").fetchall()
        return {str(row["id"]): str(row["state"]) for row in rows}

    def forget_ended(self) -> None:
        """Forget old ended jobs, and remove the frozen files of ended ones."""
        jobs = self.list_jobs()
        ended = [job for job in jobs if job.state in ENDED]
        needed = {name for job in jobs for name in job.after}
        with self._open() as connection, writing(connection):
            for job in ended[:-MAX_ENDED]:
                if str(job.id) in needed:
                    continue
                connection.execute("DELETE FROM jobs WHERE id = ?", (job.id,))
        # The output of a job that never had a run folder stays until the job is forgotten.
        kept = [job for job in jobs if job.state not in ENDED]
        kept += [job for job in ended[-MAX_ENDED:] if job.log.is_file()]
        for batch in {job.file.parent for job in ended} - {job.file.parent for job in kept}:
            if batch.is_dir():
                remove_batch(batch)

    def resolve(self, name: str) -> str:
        """The id of a job, or the folder of a run; RecordError if there is none."""
        if name.isdecimal():
            return str(self.get(int(name)).id)
        return str(read_run(name, self.runs_dir).path.absolute())

    def _require(self, job_id: int, *states: JobState) -> None:
        job = self.get(job_id)
        if job.state not in states:
            raise RecordError(
                f"job {job_id} is {job.state}, not {' or '.join(states)}\n"
                "  `epochal queue list` shows all jobs"
            )

    def _set(self, name: str, value: str) -> None:
        with self._open() as connection, writing(connection):
            connection.execute("INSERT OR REPLACE INTO settings VALUES (?, ?)", (name, value))

    def _open(self) -> closing[sqlite3.Connection]:
        return closing(open_database(self.runs_dir))

    def update(self, job_id: int, expected: Collection[JobState], **values: object) -> bool:
        """Change a job if it is in one of the expected states; returns whether it was."""
        names = ", ".join(f"{name} = ?" for name in values)
        marks = ", ".join("?" * len(expected))
        with self._open() as connection, writing(connection):
            done = connection.execute(
                f"UPDATE jobs SET {names} WHERE id = ? AND state IN ({marks})",
                (*values.values(), job_id, *expected),
            )
        return done.rowcount == 1


def _check_job(name: str, state: str | None) -> Obstacle | None:
    """Why a job that another one needs is an obstacle; None if it has finished."""
    if state is None:
        return Obstacle(f"job {name} is not known any more", is_lasting=True)
    if state == "finished":
        return None
    verb = "" if state == "failed" else "is "
    return Obstacle(f"job {name} {verb}{state}", is_lasting=state in ENDED)


def _check_run(folder: Path) -> Obstacle | None:
    """Why a run that a job needs is an obstacle; None if it has finished."""
    try:
        status = read_run(folder).summary.status
    except RecordError:
        return Obstacle(f"run {folder.name} is missing", is_lasting=True)
    if status in COMPLETED_STATUSES:
        return None
    verb = "" if status == "failed" else "is "
    has_ended = status in (*ENDED_STATUSES, "lost", "damaged")
    return Obstacle(f"run {folder.name} {verb}{status}", is_lasting=has_ended)


def _to_job(row: sqlite3.Row) -> QueuedJob:
    values: dict[str, Any] = dict(row)
    run_dir = values.pop("run_dir")
    values.pop("place")
    return QueuedJob(
        **values
        | {
            "file": Path(values["file"]),
            "after": tuple(json.loads(values["after"])),
            "environment": json.loads(values["environment"]),
            "is_paused": bool(values["is_paused"]),
            "is_unwanted": bool(values["is_unwanted"]),
            "run_dir": Path(run_dir) if run_dir else None,
        }
    )


def _title_of(job: FrozenJob) -> str:
    """What lists show: the experiment, and what was changed on the command line."""
    words = " ".join([job.title, *(redact(one) for one in job.overrides)])
    return words if len(words) <= _MAX_TITLE else words[: _MAX_TITLE - 1] + "…"
