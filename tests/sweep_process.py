"""Processes of a sweep that need no torch: ``python sweep_process.py run SWEEP LEASES`` runs it.

Its trials are this file again, as ``trial``: they write a record like a run, save when they are
preempted, and continue when they are resumed.
"""

from __future__ import annotations

import os
import secrets
import signal
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

from epochal.launch.jobs.frozen_job import read_job
from epochal.launch.pool.devices import Device, DeviceLeases
from epochal.launch.pool.local_executor import LocalExecutor
from epochal.launch.pool.pool import Pool
from epochal.records import RunFolder, RunWriter
from epochal.records.folder.folder import report_run_folder
from epochal.records.layout.lease import holding_lease
from epochal.sweep.backlog import SweepBacklog
from epochal.sweep.sweep_folder import SweepFolder

if TYPE_CHECKING:
    from types import FrameType

    from epochal.launch.pool.executor import JobStart

STEPS = 4
STEP_SECONDS = 0.03
PREEMPTED = 75


def run_sweep(sweep: Path, leases: Path) -> None:
    folder = SweepFolder(sweep)
    lock = folder.lock()
    cpu = Device(name="cpu", id="cpu", choice="cpu")
    devices = DeviceLeases([cpu], per_device=2, folder=leases)

    def format_command(start: JobStart) -> list[str]:
        resumed = [] if start.resume is None else [str(start.resume)]
        return [sys.executable, "-P", "-m", "sweep_process", "trial", str(start.file), *resumed]

    paths = (str(Path(__file__).parent), os.environ.get("PYTHONPATH", ""))
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, paths))
    executor = LocalExecutor(format_command, imports=["sweep_process"])
    sys.stdout.write("begun\n")
    sys.stdout.flush()
    Pool(SweepBacklog(folder), executor, devices, tick_seconds=0.05).run()
    lock.release()


class Preempted(BaseException):
    pass


def _preempt(number: int, frame: FrameType | None) -> None:
    raise Preempted


def run_trial(job_file: Path, resume: Path | None) -> int:
    """Take a few short steps; gives the exit code."""
    signal.signal(signal.SIGTERM, _preempt)
    job = read_job(job_file)
    path = resume or job.log_dir / "toy" / "toy" / f"20261116-120000-{secrets.token_hex(4)}"
    try:
        path.mkdir(parents=True, exist_ok=resume is not None)
        report_run_folder(path)
        with holding_lease(path):
            return _train(RunWriter(RunFolder(path), attempt=int(resume is not None)), job.choices)
    except Preempted:
        return PREEMPTED


def _train(writer: RunWriter, choices: dict[str, object]) -> int:
    path = writer.path
    if not (path / "run.json").exists():
        facts = choices["trial"]
        writer.write_run({"tag": "toy", "runner": "train", "trial": facts})
        (path / "config").mkdir(exist_ok=True)
        (path / "config" / "expanded.json").write_text("{}")
    done = path / "steps"  # stands for a checkpoint
    first = int(done.read_text() or 0) if done.exists() else 0
    try:
        writer.write_status("running")
        for step in range(first, STEPS):
            time.sleep(STEP_SECONDS)
            writer.log({"val/loss": 1.0 / (step + 1)}, step)
            temporary = done.with_suffix(".new")
            temporary.write_text(str(step + 1))
            temporary.replace(done)
    except Preempted:
        writer.write_status("preempted")
        writer.close()
        return PREEMPTED
    writer.write_result({"status": "finished"})
    writer.write_status("finished")
    writer.close()
    return 0


if __name__ == "__main__":
    what, first, *rest = sys.argv[1:]
    if what == "run":
        run_sweep(Path(first), Path(rest[0]))
    else:
        sys.exit(run_trial(Path(first), Path(rest[0]) if rest else None))
