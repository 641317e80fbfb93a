"""What a pool needs from the system that runs jobs: local processes, Ray, Slurm."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, final

if TYPE_CHECKING:
    from pathlib import Path

    from epochal.launch.jobs.frozen_job import FrozenJob
    from epochal.launch.pool.devices import Device
    from epochal.records.folder.folder import Parent


@final
@dataclass(frozen=True, kw_only=True)
class JobStart:
    """One start of a job."""

    job: FrozenJob
    file: Path
    """The file of the job, from which the process starts."""

    device: Device
    log: Path
    """Where the output of the process goes; an earlier start may have written there."""

    run_file: Path
    """Where the process writes the path of the run's folder."""

    resume: Path | None = None
    """The run to continue; None starts a new one."""

    parent: Parent | None = None
    """The run that a new run belongs to."""

    options: tuple[str, ...] = ()
    """More options of its command: number of processes, and the endpoint of the rendezvous."""

    keep_open: tuple[int, ...] = ()
    """Locks that the process holds until it ends, as descriptors of this process."""


class JobHandle(ABC):
    """A started job."""

    waits_for: str = ""
    """What it waits for before its process starts, such as a place on a cluster."""

    @abstractmethod
    def poll(self) -> int | None:
        """Its exit code, or minus the signal that killed it; None while it runs.

        When it has ended, no process of it is left.
        """

    @abstractmethod
    def stop(self) -> None:
        """Ask it to save and end, as SIGTERM does."""

    @abstractmethod
    def kill(self) -> None:
        """End it at once, with all processes that it started."""


class Executor(ABC):
    """Starts jobs on devices."""

    @abstractmethod
    def describe(self, start: JobStart) -> str:
        """What ``submit`` would start, for ``--dry-run``: one command line."""

    @abstractmethod
    def submit(self, start: JobStart) -> JobHandle:
        """Start a job; OSError if that is impossible."""

    @abstractmethod
    def close(self) -> None:
        """End what it keeps for further jobs; the pool has ended."""
