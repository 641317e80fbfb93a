"""Runs jobs on Slurm through submitit; only the process that launches jobs imports this."""

from __future__ import annotations

import json
import shlex
import signal
import subprocess
import sys
import time
from dataclasses import replace
from typing import TYPE_CHECKING, Any, final
from zlib import crc32

from typing_extensions import override

from epochal import durable
from epochal.errors import (
    CANNOT_START_EXIT_CODE,
    INTERRUPTED_EXIT_CODE,
    PREEMPTED_EXIT_CODE,
    ConfigError,
    Problem,
)
from epochal.launch.cluster.node_job import (
    NodeJob,
    NodeStart,
    describe_node_start,
    is_complete,
    plan_node_start,
)
from epochal.launch.launch_options import LaunchOptions
from epochal.launch.pool.executor import Executor, JobHandle, JobStart
from epochal.launch.pool.pool import read_run_file
from epochal.launch.restart_policy import SUCCESS

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path
    from types import FrameType

    import submitit

_POLL_SECONDS = 0.5
_MAX_TIMEOUTS = 10_000
_MAX_ARRAY = 1000
_KILLED = -9
_LOST = ("PREEMPTED", "NODE_FAIL", "BOOT_FAIL", "TIMEOUT", "REQUEUED")
_SBATCH_NAMES = {
    "nodes": "nodes",
    "slurm_partition": "partition",
    "timeout_min": "time",
    "gpus_per_node": "gpus-per-node",
    "cpus_per_task": "cpus-per-task",
    "mem_gb": "mem",
}
_FIRST_PORT, _PORTS = 20_000, 10_000
_ID_SUFFIX, _STOP_SUFFIX = ".slurm", ".stop"


@final
class SlurmExecutor(Executor):
    """Submits jobs; those that start together and need the same become one job array.

    Args:
        cluster: A cluster of submitit: ``slurm``, or ``local`` for processes of this machine.
        max_jobs: How many elements of an array run at once.
    """

    def __init__(self, *, cluster: str = "slurm", max_jobs: int | None = None) -> None:
        self._cluster = cluster
        self._max_jobs = max_jobs
        self._waiting: list[tuple[JobStart, _SlurmHandle]] = []

    @override
    def describe(self, start: JobStart) -> str:
        options = LaunchOptions(**start.job.launch)
        parameters = _parameters(options, self._max_jobs)
        parameters |= {"nodes": None} if options.node_range[1] == 1 else {}
        shown = {new: parameters[old] for old, new in _SBATCH_NAMES.items() if parameters.get(old)}
        shown |= {"mem": f"{shown['mem']}GB"} if "mem" in shown else {}
        shown |= parameters["slurm_additional_parameters"]
        words = [
            f"--{name}" if value is True else f"--{name}={value}" for name, value in shown.items()
        ]
        request = plan_node_start(start, options, options.gpus_per_node)
        if options.node_range[1] > 1:
            request = request.with_rendezvous(options.nodes, "FIRST_NODE:PORT")
        return f"sbatch {shlex.join(words)}: {describe_node_start(start, request)}"

    @override
    def submit(self, start: JobStart) -> JobHandle:
        start.file.with_suffix(_STOP_SUFFIX).unlink(missing_ok=True)
        handle = _SlurmHandle(start.file, start.log, self._submit_waiting)
        if not handle.find_submitted():
            self._waiting.append((start, handle))
        return handle

    @override
    def close(self) -> None:
        pass

    def _submit_waiting(self) -> None:
        """Submit what waits: the first handle that is polled starts all that came before."""
        waiting, self._waiting = self._waiting, []
        arrays: dict[str, list[tuple[JobStart, _SlurmHandle]]] = {}
        for start, handle in waiting:
            if handle.has_ended:  # stopped before it was submitted
                continue
            key = json.dumps([str(start.file.parent), start.job.launch], sort_keys=True)
            arrays.setdefault(key, []).append((start, handle))
        for array in arrays.values():
            try:
                self._submit_array(array)
            except Exception as error:
                for _, handle in array:
                    handle.fail(f"cannot be submitted: {error}")

    def _submit_array(self, array: list[tuple[JobStart, _SlurmHandle]]) -> None:
        import submitit

        first = array[0][0]
        options = LaunchOptions(**first.job.launch)
        folder = first.file.parent / "slurm"
        name = f"{self._cluster}_max_num_timeout"
        executor = submitit.AutoExecutor(folder, self._cluster, **{name: _MAX_TIMEOUTS})
        parameters = _parameters(options, self._max_jobs)
        if self._cluster == "local":  # which has one node: a task stands for each
            parameters |= {"nodes": 1, "tasks_per_node": parameters["nodes"]}
        executor.update_parameters(**parameters)
        calls = [
            SlurmCall(plan_node_start(start, options, options.gpus_per_node)) for start, _ in array
        ]
        for job, (_, handle) in zip(executor.submit_array(calls), array, strict=True):
            handle.set_submitted(job.task(0), folder)


def require_slurm(*, has_commands: bool) -> None:
    """Refuse early if submitit is not installed, or commands of Slurm are missing but needed.

    Raises:
        ImportError: submitit is missing.
        ConfigError: There are no commands of Slurm.
    """
    import submitit

    if has_commands and submitit.SlurmExecutor.affinity() < 0:
        what, hint = "this machine has no command srun", "log in to a machine of the cluster"
        raise ConfigError(Problem("launch.on", what, hint=hint))


def _parameters(options: LaunchOptions, max_jobs: int | None) -> dict[str, Any]:
    more = dict(options.slurm) | ({"account": options.account} if options.account else {})
    parameters = {
        "name": "epochal",
        "timeout_min": max(1, int(options.time.seconds // 60)),
        "nodes": options.node_range[1],
        "tasks_per_node": 1,  # a launcher, which starts the processes of its node
        "cpus_per_task": options.num_cpus,
        "gpus_per_node": options.gpus_per_node or None,
        "mem_gb": options.memory_gb,
        "stderr_to_stdout": True,
        "slurm_partition": options.partition,
        "slurm_array_parallelism": max_jobs or _MAX_ARRAY,
        "slurm_setup": list(options.setup) or None,
        "slurm_additional_parameters": {"requeue": True} | more,
    }
    return {name: value for name, value in parameters.items() if value is not None}


@final
class SlurmCall:
    """What a Slurm job calls on each of its nodes: runs a job, and has it requeued when preempted.

    Slurm's signal before the end of the time, and a process that ends with 75 by itself, lead to
    the same: the run is saved, the Slurm job is requeued, and its next start resumes the run. A
    Slurm job that is requeued without a warning, as after the loss of its node, resumes it, too.

    Args:
        start: What to start.
        code: The exit code of a job that has ended already.
    """

    def __init__(self, start: NodeStart, code: int | None = None) -> None:
        self._start = start
        self._code = code
        self._is_preempted = False

    def __call__(self) -> int:
        """The exit code of the job; does not return if Slurm requeues it."""
        from submitit.core.job_environment import JobEnvironment

        run_dir = read_run_file(self._start.run_file)
        if self._code is not None:
            return self._code
        if run_dir is not None and is_complete(run_dir):
            return SUCCESS
        start = self._start if run_dir is None else self._start.again(run_dir)
        place = JobEnvironment()
        if place.num_tasks > 1:
            port = _FIRST_PORT + crc32(place.job_id.encode()) % _PORTS  # the same on all nodes
            start = start.with_rendezvous(place.num_tasks, f"{place.hostnames[0]}:{port}")
        # The process of the run starts others; it is none of the ranks that Slurm has started.
        start = replace(start, environment={**start.environment, "SLURM_PROCID": ""})
        number = signal.Signals[f"SIG{JobEnvironment.USR_SIG}"]
        before = signal.getsignal(number)
        code, is_stopped = self._run(NodeJob(start), number)
        signal.signal(number, before)
        if not is_stopped and (self._is_preempted or code == PREEMPTED_EXIT_CODE):
            self._code = None if code == PREEMPTED_EXIT_CODE else code
            _requeue(number)
        return code

    def _run(self, job: NodeJob, number: int) -> tuple[int, bool]:
        is_stopped, has_asked = False, False
        # Slurm sends its signals to all processes of a job. The process of the run must not die
        # of this one: it inherits that it is ignored.
        signal.signal(number, signal.SIG_IGN)
        while (code := job.poll()) is None:
            if job.has_started:
                signal.signal(number, self._handle_signal)
            is_stopped = is_stopped or self._start.file.with_suffix(_STOP_SUFFIX).exists()
            if (is_stopped or self._is_preempted) and not has_asked:
                has_asked = True
                job.stop()
            time.sleep(_POLL_SECONDS)
        return code, is_stopped

    def _handle_signal(self, number: int, frame: FrameType | None) -> None:
        self._is_preempted = True

    def checkpoint(self) -> submitit.helpers.DelayedSubmission:
        """What submitit submits again."""
        import submitit

        return submitit.helpers.DelayedSubmission(SlurmCall(self._start, self._code))


def _requeue(number: int) -> None:
    """Let submitit requeue this Slurm job and end this process; it returns on further nodes."""
    try:
        signal.raise_signal(number)
    except subprocess.SubprocessError:  # Slurm cancels or requeues it already
        sys.exit(PREEMPTED_EXIT_CODE)


@final
class _SlurmHandle(JobHandle):
    """A job that Slurm knows by its id; a file beside the job has it, for the next worker."""

    def __init__(self, file: Path, log: Path, submit: Callable[[], None]) -> None:
        self._file, self._log = file, log
        self._submit = submit
        self._job: Any = None  # of submitit, which has no types for it
        self._code: int | None = None

    def set_submitted(self, job: Any, folder: Path) -> None:  # noqa: ANN401
        self._job = job
        facts = {"folder": str(folder), "id": job.job_id}
        durable.write_json(self._file.with_suffix(_ID_SUFFIX), facts)

    def find_submitted(self) -> bool:
        """Whether an earlier worker submitted this job, and Slurm still has it or its result."""
        import submitit

        facts = durable.find_object(self._file.with_suffix(_ID_SUFFIX))
        if isinstance(facts.get("id"), str) and isinstance(facts.get("folder"), str):
            self._job = submitit.SlurmJob(facts["folder"], facts["id"])
        return self._job is not None

    def fail(self, text: str) -> None:
        """Note that it could not be started."""
        with durable.Appender(self._log) as log:
            log.append(f"{text}\n".encode("utf-8", "replace"))
        self._end(CANNOT_START_EXIT_CODE)

    @override
    def poll(self) -> int | None:
        if self._code is None and self._job is None:
            self._submit()
        if self._code is None and self._job.done():
            self._read()
        elif self._code is None:
            is_pending = self._job.state == "PENDING"
            self.waits_for = f"waits in Slurm as job {self._job.job_id}" if is_pending else ""
        return self._code

    @property
    def has_ended(self) -> bool:
        """Whether its exit code is known."""
        return self._code is not None

    def _read(self) -> None:
        from submitit.core.utils import FailedJobError

        if not self._job.paths.result_pickle.exists():
            state = str(self._job.state).partition(" ")[0].upper()
            is_cancelled = state.startswith("CANCELLED")
            code = PREEMPTED_EXIT_CODE if state in _LOST else _KILLED
            self._end(INTERRUPTED_EXIT_CODE if is_cancelled else code)
            return
        try:
            self._end(int(self._job.result()))
        except FailedJobError as error:
            self.fail(f"cannot be started: {error}")

    def _end(self, code: int) -> None:
        self._code = code
        self._file.with_suffix(_ID_SUFFIX).unlink(missing_ok=True)

    @override
    def stop(self) -> None:
        if self._code is not None:
            return
        if self._job is None:
            self._end(PREEMPTED_EXIT_CODE)
            return
        self._file.with_suffix(_STOP_SUFFIX).touch()
        self._job.get_info(mode="force")
        if self._job.state == "PENDING":  # nothing runs that would see the file
            self._job.cancel(check=False)
            self._end(PREEMPTED_EXIT_CODE)

    @override
    def kill(self) -> None:
        if self._code is None and self._job is None:
            self._end(_KILLED)
        elif self._code is None:
            self._job.cancel(check=False)
