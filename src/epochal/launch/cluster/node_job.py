"""One job on a node of a cluster: starts its process there; independent of Ray and Slurm."""

from __future__ import annotations

import sys
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, final

from typing_extensions import override

from epochal import durable
from epochal.errors import PREEMPTED_EXIT_CODE, RecordError
from epochal.launch.jobs.frozen_job import read_job
from epochal.launch.pool.devices import Device
from epochal.launch.pool.executor import Executor, JobHandle, JobStart
from epochal.launch.pool.local_executor import LocalExecutor
from epochal.launch.queue.worker import can_auto_resume
from epochal.records.find import read_run
from epochal.records.folder.folder import Parent
from epochal.records.layout.lease import LEASE_FILE, is_owner_alive
from epochal.records.layout.process import host_name
from epochal.records.layout.run_status import COMPLETED_STATUSES

if TYPE_CHECKING:
    from collections.abc import Mapping

    from epochal.launch.launch_options import LaunchOptions
    from epochal.launch.pool.backlog import JobEnd, WaitingJob

_THREADS = "OMP_NUM_THREADS"


@final
@dataclass(frozen=True, kw_only=True)
class NodeStart:
    """One start of a job as it is sent to a node: paths that all nodes see, no values."""

    file: Path
    device: str
    """The device as the process sees it; empty: the first one."""

    log: Path
    run_file: Path
    environment: Mapping[str, str] = field(default_factory=dict)
    options: tuple[str, ...] = ()
    """More options of the process."""

    resume: Path | None = None
    parent: Parent | None = None

    def again(self, run_dir: Path | None) -> NodeStart:
        """The next start after a preemption."""
        resume, parent = plan_restart(run_dir)
        return replace(self, resume=resume, parent=parent or self.parent)

    def with_rendezvous(self, nodes: int | str, endpoint: str) -> NodeStart:
        """The same start as one of several machines that connect to an endpoint."""
        words = ("--nnodes", str(nodes), "--rdzv-endpoint", endpoint)
        return replace(self, options=(*self.options, *words))


def plan_node_start(start: JobStart, options: LaunchOptions, num_gpus: int | None) -> NodeStart:
    """What is sent to the node; ``num_gpus`` are those that the cluster assigns, None: unknown."""
    device = start.device.choice
    if not device and num_gpus is not None:
        device = "cpu" if not num_gpus else "cuda:0" if options.num_ranks == 1 else "cuda"
    environment = dict(start.device.environment)
    if not start.job.environment.get(_THREADS):  # the same on every node: it changes sums
        num_ranks = max(options.num_ranks, start.job.num_processes)
        threads = max(1, options.num_cpus // num_ranks)
        environment.setdefault(_THREADS, str(threads))
    return NodeStart(
        file=start.file,
        device=device,
        log=start.log,
        run_file=start.run_file,
        environment=environment,
        options=("--nproc", str(options.num_ranks)) if options.num_ranks > 1 else (),
        resume=start.resume,
        parent=start.parent,
    )


def describe_node_start(start: JobStart, request: NodeStart) -> str:
    """The command that a node will run, with its variables."""
    device = replace(start.device, choice=request.device, environment=request.environment)
    return LocalExecutor().describe(replace(start, device=device, options=request.options))


def plan_restart(run_dir: Path | None) -> tuple[Path | None, Parent | None]:
    """The run to resume, or else the run that a new one replaces."""
    if run_dir is None:
        return None, None
    try:
        if can_auto_resume(read_run(run_dir)):
            return run_dir, None
    except RecordError:  # it was killed before it wrote a record
        pass
    return None, Parent(run_dir.name, "retried")


def is_complete(run_dir: Path) -> bool:
    """Whether nothing is left to do for a run."""
    try:
        return read_run(run_dir).summary.status in COMPLETED_STATUSES
    except RecordError:
        return False


def restart_preempted(waiting: WaitingJob, end: JobEnd) -> WaitingJob | None:
    """The next start of a job that was preempted or lost its node; None if it has ended."""
    if end.code != PREEMPTED_EXIT_CODE or end.was_stopped:
        return None
    if end.run_dir is not None and is_complete(end.run_dir):  # its node was lost just after its end
        return None
    resume, parent = plan_restart(end.run_dir)
    return replace(waiting, resume=resume, parent=parent or waiting.parent)


@final
class NodeJob(JobHandle):
    """A job on this machine; it starts when no other process works on its run any more.

    A node that was lost gives no sign that its process has ended: its run is free when its
    heartbeat has stopped.
    """

    def __init__(self, start: NodeStart, executor: Executor | None = None) -> None:
        self._start = start
        self._executor = executor or LocalExecutor()
        self._handle: JobHandle | None = None
        self._is_unwanted = False
        self._has_told = False

    @property
    def has_started(self) -> bool:
        """Whether its process was started."""
        return self._handle is not None

    @override
    def poll(self) -> int | None:
        if self._handle is None:
            if self._is_unwanted:
                return PREEMPTED_EXIT_CODE
            if not self._can_start():
                return None
            self._handle = self._executor.submit(self._plan())
        return self._handle.poll()

    @override
    def stop(self) -> None:
        self._is_unwanted = True
        if self._handle is not None:
            self._handle.stop()

    @override
    def kill(self) -> None:
        self._is_unwanted = True
        if self._handle is not None:
            self._handle.kill()

    def _can_start(self) -> bool:
        folder = self._start.resume
        if folder is None:
            return True
        owner = durable.find_object(folder / LEASE_FILE)
        is_free = not is_owner_alive(folder, owner)
        if not is_free and not self._has_told:
            self._has_told = True
            text = f"waiting until process {owner.get('pid')} on {owner.get('host')} has ended\n"
            with durable.Appender(self._start.log) as log:
                log.append(text.encode("utf-8", "replace"))
        return is_free

    def _plan(self) -> JobStart:
        start = self._start
        if not start.file.is_file():
            raise RecordError(
                f"{host_name()}: does not see {start.file}\n"
                "  set record.log_dir to a folder that all nodes share"
            )
        job = read_job(start.file)
        if not Path(job.python).is_file():
            job = replace(job, python=sys.executable)
        name = start.device or "auto"
        return JobStart(
            job=job,
            file=start.file,
            device=Device(
                name=name, id=name, choice=start.device, environment=dict(start.environment)
            ),
            log=start.log,
            run_file=start.run_file,
            options=start.options,
            resume=start.resume,
            parent=start.parent,
        )
