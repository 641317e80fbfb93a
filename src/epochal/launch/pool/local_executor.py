"""Runs each job in its own process on this machine."""

from __future__ import annotations

import os
import shlex
import signal
import threading
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, final

from typing_extensions import override

from epochal.errors import PREEMPTED_EXIT_CODE
from epochal.launch.child_process import start_child
from epochal.launch.fork_server import ForkServer, can_fork
from epochal.launch.jobs.freeze_code import find_framework
from epochal.launch.pool.executor import Executor, JobHandle, JobStart
from epochal.records.folder.folder import JOB_RUN_FILE_VARIABLE, PARENT_VARIABLE

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from epochal.launch.fork_server import ForkedProcess, PendingProcess

JOB_IMPORTS = (
    "epochal.experiment.run",
    "torch.fx.experimental.symbolic_shapes",
    "torch.distributed.fsdp",
)
"""What every job imports before the code of its project, or with its first optimizer.

A variable that a project sets when it is imported would come too late for ``torch._dynamo``, which
the first optimizer imports, too; so this has only those of its parts that read no such variable.
"""

_JOB_VARIABLES = {"CUDA_VISIBLE_DEVICES", JOB_RUN_FILE_VARIABLE, PARENT_VARIABLE}
"""Variables that nothing reads at import, so that jobs of one server may differ in them."""


def format_job_command(start: JobStart) -> list[str]:
    """The command of a job: its file has all values, the command line has none of them."""
    words = [start.job.python, "-P", "-m", "epochal", "run-job", str(start.file)]
    words += ["--device", start.device.choice] if start.device.choice else []
    words += start.options
    return words + (["--resume", str(start.resume)] if start.resume is not None else [])


@final
class LocalExecutor(Executor):
    """Starts processes on this machine.

    Args:
        format_command: Gives the command of each job.
        imports: Modules that a fork server imports once for all jobs, where that is possible;
            without any, each job is a new process.
    """

    def __init__(
        self,
        format_command: Callable[[JobStart], Sequence[str]] = format_job_command,
        *,
        imports: Sequence[str] = (),
    ) -> None:
        self._format_command = format_command
        self._imports = imports
        self._servers: list[tuple[_ServerKey, ForkServer]] = []
        self._unusable: set[_ServerKey] = set()

    @override
    def describe(self, start: JobStart) -> str:
        variables = [f"{name}={value}" for name, value in start.device.environment.items()]
        return shlex.join([*variables, *self._format_command(start)])

    @override
    def submit(self, start: JobStart) -> JobHandle:
        command, environment = self._format_command(start), _environment(start)

        def start_new() -> subprocess.Popen[bytes]:
            with start.log.open("ab") as output:
                return start_child(
                    command,
                    environment,
                    cwd=start.job.cwd,
                    output=output,
                    keep_open=start.keep_open,
                )

        key = self._find_key(command, start.job.cwd, environment)
        if key is None or key in self._unusable:
            return _ChildHandle(start_new())
        try:
            with start.log.open("ab") as output:
                pending = self._get_server(key).start(
                    command,
                    {**os.environ, **environment},
                    cwd=start.job.cwd,
                    output=output,
                    keep_open=start.keep_open,
                )
        except OSError:
            self._unusable.add(key)
            return _ChildHandle(start_new())

        def start_without_server() -> subprocess.Popen[bytes]:
            self._unusable.add(key)
            return start_new()

        return _ForkedHandle(pending, start_without_server)

    @override
    def close(self) -> None:
        while self._servers:
            self._servers.pop()[1].close()

    def _find_key(
        self, command: Sequence[str], cwd: Path, environment: Mapping[str, str]
    ) -> _ServerKey | None:
        """What a server must share with a job; None: the job needs a new process."""
        is_main = threading.current_thread() is threading.main_thread()
        if not self._imports or not is_main or not can_fork(command):
            return None
        variables = {**os.environ, **environment}
        shared = ((name, variables[name]) for name in variables.keys() - _JOB_VARIABLES)
        return _ServerKey(cwd, frozenset(shared))

    def _get_server(self, key: _ServerKey) -> ForkServer:
        """The newest server, or a new one for a job that cannot share it."""
        if self._servers and self._servers[-1][0] == key:
            return self._servers[-1][1]
        if self._servers:
            self._servers[-1][1].retire()
            self._servers = [one for one in self._servers if not one[1].has_ended()]
        server = ForkServer(self._imports, dict(key.environment), cwd=key.cwd)
        self._servers.append((key, server))
        return server


@final
@dataclass(frozen=True)
class _ServerKey:
    """What decides the state of a process after its imports."""

    cwd: Path
    environment: frozenset[tuple[str, str]]


def _environment(start: JobStart) -> dict[str, str]:
    job = start.job
    environment = {**start.device.environment, **job.environment}
    environment[JOB_RUN_FILE_VARIABLE] = str(start.run_file)
    if start.parent is not None and start.resume is None:
        environment |= start.parent.to_environment()
    framework = find_framework(job.code.snapshot)
    if framework is not None:
        paths = (str(framework), environment.get("PYTHONPATH") or os.environ.get("PYTHONPATH", ""))
        environment["PYTHONPATH"] = os.pathsep.join(filter(None, paths))
    return environment


@final
class _ForkedHandle(JobHandle):
    """A job that a fork server starts; it gets a new process if the server ends before."""

    def __init__(
        self, pending: PendingProcess, start_new: Callable[[], subprocess.Popen[bytes]]
    ) -> None:
        self._pending = pending
        self._start_new = start_new
        self._child: _ChildHandle | None = None
        self._is_withdrawn = False

    @override
    def poll(self) -> int | None:
        if self._child is None and not self._is_withdrawn:
            self._child = self._find()
        if self._child is not None:
            return self._child.poll()
        return PREEMPTED_EXIT_CODE if self._is_withdrawn else None

    @override
    def stop(self) -> None:
        self._withdraw()
        if self._child is not None:
            self._child.stop()

    @override
    def kill(self) -> None:
        self._withdraw()
        if self._child is not None:
            self._child.kill()

    def _find(self) -> _ChildHandle | None:
        try:
            found = self._pending.find()
        except ChildProcessError:
            return _ChildHandle(self._start_new())
        return None if found is None else _ChildHandle(found)

    def _withdraw(self) -> None:
        """Do not start it, unless that has happened already."""
        if self._child is None and not self._is_withdrawn:
            found = self._pending.withdraw()
            self._is_withdrawn = found is None
            self._child = None if found is None else _ChildHandle(found)


@final
class _ChildHandle(JobHandle):
    def __init__(self, child: subprocess.Popen[bytes] | ForkedProcess) -> None:
        self._child = child

    @override
    def poll(self) -> int | None:
        if self._child.returncode is None and self._has_ended():
            self._kill_group()  # before its id is free again
        return self._child.poll()

    @override
    def stop(self) -> None:
        self._child.send_signal(signal.SIGTERM)

    @override
    def kill(self) -> None:
        if self._child.returncode is None:
            self._kill_group()

    def _has_ended(self) -> bool:
        """Whether it has ended; unlike ``poll`` this leaves the process to be waited for."""
        options = os.WEXITED | os.WNOHANG | os.WNOWAIT
        try:
            return os.waitid(os.P_PID, self._child.pid, options) is not None
        except ChildProcessError:  # other code waited for it
            return False

    def _kill_group(self) -> None:
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self._child.pid, signal.SIGKILL)
