"""Jobs for tests of the pool and the queue that need no training."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Any

from epochal.config import FrozenSource
from epochal.launch.jobs.frozen_job import FrozenCode, FrozenJob
from epochal.launch.pool.backlog import WaitingJob
from epochal.launch.pool.devices import Device, DeviceLeases
from epochal.launch.pool.executor import Executor, JobHandle, JobStart
from epochal.launch.pool.local_executor import LocalExecutor
from epochal.registry.project import Project

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

CPU = Device(name="cpu", id="cpu", choice="cpu")


def device(name: str, **more: Any) -> Device:
    return Device(name=name, id=name, choice=name, **more)


def waiting_jobs(folder: Path, count: int, **more: Any) -> list[WaitingJob]:
    """Frozen jobs 1.yaml, 2.yaml, ... in ``folder``, written to their files."""
    folder.mkdir(parents=True, exist_ok=True)
    jobs = []
    for number in range(1, count + 1):
        path = folder / f"{number}.yaml"
        job = FrozenJob(
            name=str(number),
            source=FrozenSource(path, {str(path): "tag: x\n"}, str(path.parent)),
            code=FrozenCode(project=Project(folder)),
            log_dir=folder,
            cwd=folder,
            python=sys.executable,
        )
        file = folder / f"{number}.json"
        job.write(file)
        jobs.append(WaitingJob(key=number, job=job, file=file, **more))
    return jobs


def make_leases(folder: Path, *devices: Device, per_device: int = 1) -> DeviceLeases:
    return DeviceLeases(devices or (CPU,), per_device=per_device, folder=folder / "home" / "leases")


def script_executor(script: str, *words: str) -> LocalExecutor:
    """Runs a Python script in a real process, with the number of the job and more words."""

    def format_command(start: JobStart) -> Sequence[str]:
        return [sys.executable, "-S", "-c", script, start.file.stem, *words]

    return LocalExecutor(format_command)


def forking_executor(folder: Path, script: str, *words: str, preloaded: str = "") -> LocalExecutor:
    """As ``script_executor``, but a server forks the processes after it has run ``preloaded``."""
    (folder / "script.py").write_text(script)
    (folder / "preloaded.py").write_text(preloaded)
    paths = (str(folder), os.environ.get("PYTHONPATH", ""))
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, paths))

    def format_command(start: JobStart) -> Sequence[str]:
        return [sys.executable, "-P", "-m", "script", start.file.stem, *words]

    return LocalExecutor(format_command, imports=["preloaded"])


class ScriptedHandle(JobHandle):
    def __init__(self, code: int | None) -> None:
        self.code = code
        self.calls: list[str] = []

    def poll(self) -> int | None:
        return self.code

    def stop(self) -> None:
        self.calls.append("stop")
        self.code = 75

    def kill(self) -> None:
        self.calls.append("kill")
        self.code = -9


class ScriptedExecutor(Executor):
    """Jobs that end at once with the code of their number; None never ends by itself."""

    def __init__(self, codes: dict[int, int | None] | None = None) -> None:
        self.codes = codes or {}
        self.starts: list[JobStart] = []
        self.handles: dict[int, ScriptedHandle] = {}

    def describe(self, start: JobStart) -> str:
        return f"start {start.file.stem}"

    def submit(self, start: JobStart) -> JobHandle:
        self.starts.append(start)
        number = int(start.file.stem)
        self.handles[number] = ScriptedHandle(self.codes.get(number, 0))
        return self.handles[number]

    def close(self) -> None:
        pass
