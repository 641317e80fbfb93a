"""Runs each job in a process of its own on this machine."""

from __future__ import annotations

import os
import shlex
import signal
from contextlib import suppress
from typing import TYPE_CHECKING, final

from typing_extensions import override

from epochal.launch.child_process import start_child
from epochal.launch.jobs.freeze import find_framework
from epochal.launch.pool.executor import Executor, JobHandle, JobStart
from epochal.records.folder.folder import JOB_RUN_FILE_VARIABLE

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Callable, Sequence


def format_job_command(start: JobStart) -> list[str]:
    """The command of a job: its file has all values, the command line has none of them."""
    words = [start.job.python, "-P", "-m", "epochal", "run-job", str(start.file)]
    words += ["--device", start.device.choice] if start.device.choice else []
    words += start.options
    return words + (["--resume", str(start.resume)] if start.resume is not None else [])


@final
class LocalExecutor(Executor):
    """Starts processes; ``format_command`` gives the command of each."""

    def __init__(
        self, format_command: Callable[[JobStart], Sequence[str]] = format_job_command
    ) -> None:
        self._format_command = format_command

    @override
    def describe(self, start: JobStart) -> str:
        variables = [f"{name}={value}" for name, value in start.device.environment.items()]
        return shlex.join([*variables, *self._format_command(start)])

    @override
    def submit(self, start: JobStart) -> JobHandle:
        with start.log.open("ab") as output:
            child = start_child(
                self._format_command(start),
                _environment(start),
                cwd=start.job.cwd,
                output=output,
                keep_open=start.keep_open,
            )
        return _ChildHandle(child)


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
class _ChildHandle(JobHandle):
    def __init__(self, child: subprocess.Popen[bytes]) -> None:
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
