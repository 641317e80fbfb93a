"""Where a pool takes its jobs from: a list of jobs, or the queue."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, final

from typing_extensions import override

from epochal.launch.pool.devices import ANY_DEVICE, DeviceRequest

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence
    from pathlib import Path

    from epochal import durable
    from epochal.launch.jobs.frozen_job import FrozenJob
    from epochal.records.folder.folder import Parent


@final
@dataclass(frozen=True, kw_only=True)
class WaitingJob:
    """A job that a pool may start now."""

    key: int
    """Its number: in the list from 1, or in the queue."""

    job: FrozenJob
    file: Path
    """The file of the job; its output and the path of its run go beside it."""

    preferred: str = ""
    """The device that it runs on if that is free."""

    resume: Path | None = None
    parent: Parent | None = None
    """The run that a new run of this job belongs to."""

    lock: durable.HeldLock | None = None
    """A lock that its process holds, too; the pool releases it at the end."""

    environment: dict[str, str] = field(default_factory=dict)
    """Variables of the device that an earlier start of the job had."""

    @property
    def request(self) -> DeviceRequest:
        """What it needs to start."""
        return DeviceRequest(preferred=self.preferred, num_processes=self.job.num_processes)

    @property
    def log(self) -> Path:
        """The file with the output of its processes."""
        return self.file.with_suffix(".log")

    @property
    def run_file(self) -> Path:
        """The file with the path of its run folder."""
        return self.file.with_suffix(".run")


@final
@dataclass(frozen=True, kw_only=True)
class JobEnd:
    """How a process of a job ended."""

    code: int
    """Its exit code, or minus the signal that killed it."""

    run_dir: Path | None = None
    """The folder of the run, if it had one."""

    was_stopped: bool = False
    """Whether the pool asked it to stop."""


Restart = Callable[[WaitingJob, JobEnd], WaitingJob | None]
"""Gives the next start of a job that has ended; None if that was its end."""


def never_restart(waiting: WaitingJob, end: JobEnd) -> None:
    """Start each job once."""


class Backlog(ABC):
    """Jobs for a pool."""

    @abstractmethod
    def peek(self) -> DeviceRequest | None:
        """What the next job that can start now needs; None if there is no job."""

    @abstractmethod
    def take(self, request: DeviceRequest = ANY_DEVICE) -> WaitingJob | None:
        """The next job that needs as many devices; None if there is none, or another pool took it.

        The caller must start it and report its end.
        """

    @abstractmethod
    def begin(self, waiting: WaitingJob, device: str, environment: dict[str, str]) -> None:
        """Note where a job was started."""

    @abstractmethod
    def end(self, waiting: WaitingJob, end: JobEnd) -> None:
        """Note how a process of a job ended."""

    @abstractmethod
    def is_done(self) -> bool:
        """Whether no job will come any more, apart from those that run now."""

    @abstractmethod
    def count_waiting(self) -> int:
        """How many jobs wait."""

    @abstractmethod
    def find_unwanted(self) -> Collection[int]:
        """The keys of running jobs that should stop."""

    @abstractmethod
    def wants_drain(self) -> bool:
        """Whether the pool should let its jobs end and start no more."""


@final
class JobList(Backlog):
    """A fixed list of jobs, started in order; ``ends`` has how they ended.

    Args:
        jobs: The jobs.
        restart: Which jobs start again after their end.
    """

    def __init__(
        self,
        jobs: Sequence[WaitingJob],
        *,
        restart: Restart = never_restart,
    ) -> None:
        self._waiting = list(jobs)
        self._restart = restart
        self.ends: dict[int, JobEnd] = {}

    @override
    def peek(self) -> DeviceRequest | None:
        return self._waiting[0].request if self._waiting else None

    @override
    def take(self, request: DeviceRequest = ANY_DEVICE) -> WaitingJob | None:
        return self._waiting.pop(0) if self._waiting else None

    @override
    def begin(self, waiting: WaitingJob, device: str, environment: dict[str, str]) -> None:
        pass

    @override
    def end(self, waiting: WaitingJob, end: JobEnd) -> None:
        again = self._restart(waiting, end)
        if again is None:
            self.ends[waiting.key] = end
        else:
            self._waiting.append(again)

    @override
    def is_done(self) -> bool:
        return not self._waiting

    @override
    def count_waiting(self) -> int:
        return len(self._waiting)

    @override
    def find_unwanted(self) -> Collection[int]:
        return ()

    @override
    def wants_drain(self) -> bool:
        return False
