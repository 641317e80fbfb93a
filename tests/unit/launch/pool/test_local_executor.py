"""Each job has a process with its own folder, environment and output."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from typing import TYPE_CHECKING

from epochal.launch.pool.local_executor import LocalExecutor, format_job_command
from epochal.launch.pool.pool import plan_start
from epochal.records.folder.folder import Parent
from pooled import device, make_leases, script_executor, waiting_jobs

if TYPE_CHECKING:
    from pathlib import Path

    import pytest

    from epochal.launch.pool.backlog import WaitingJob
    from epochal.launch.pool.executor import JobStart

PRINT = "import json, os; print(json.dumps([os.getcwd(), dict(os.environ)]))"


def start_of(tmp_path: Path, waiting: WaitingJob) -> JobStart:
    gpu = device("cuda:0", environment={"CUDA_VISIBLE_DEVICES": "GPU-7", "OMP_NUM_THREADS": "2"})
    lease = make_leases(tmp_path, gpu).acquire()
    assert lease is not None
    return plan_start(waiting, lease)


def environment_of(start: JobStart) -> dict[str, str]:
    handle = script_executor(PRINT).submit(start)
    while handle.poll() is None:
        pass
    folder, environment = json.loads(start.log.read_text())
    assert folder == str(start.job.cwd)
    found: dict[str, str] = environment
    return found


def test_a_process_has_the_variables_of_its_device_and_its_job(tmp_path: Path) -> None:
    (waiting,) = waiting_jobs(tmp_path / "jobs", 1, parent=Parent("20261116-000000-abcd", "trial"))
    job = replace(waiting.job, environment={"OMP_NUM_THREADS": "5"})
    found = environment_of(start_of(tmp_path, replace(waiting, job=job)))
    assert found["CUDA_VISIBLE_DEVICES"] == "GPU-7"
    assert found["OMP_NUM_THREADS"] == "5"  # as it was when the job was submitted
    assert found["EPOCHAL_JOB_RUN_FILE"] == str(waiting.run_file)
    assert found["EPOCHAL_PARENT"] == "trial:20261116-000000-abcd"
    assert "EPOCHAL_RUN_FILE" not in found


def test_a_resumed_run_keeps_the_parent_that_it_has(tmp_path: Path) -> None:
    parent = Parent("20261116-000000-abcd", "trial")
    (waiting,) = waiting_jobs(tmp_path / "jobs", 1, parent=parent, resume=tmp_path)
    start = start_of(tmp_path, waiting)
    assert "EPOCHAL_PARENT" not in environment_of(start)
    assert format_job_command(start)[-2:] == ["--resume", str(tmp_path)]


def test_a_job_imports_the_epochal_of_its_submission(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (waiting,) = waiting_jobs(tmp_path / "jobs", 1)
    monkeypatch.setattr(
        "epochal.launch.pool.local_executor.find_framework", lambda snapshot: tmp_path / "older"
    )
    monkeypatch.setenv("PYTHONPATH", "mine")
    assert environment_of(start_of(tmp_path, waiting))["PYTHONPATH"] == f"{tmp_path / 'older'}:mine"


def test_description_is_the_command_with_its_variables(tmp_path: Path) -> None:
    (waiting,) = waiting_jobs(tmp_path / "jobs", 1)
    text = LocalExecutor().describe(start_of(tmp_path, waiting))
    assert text == (
        f"CUDA_VISIBLE_DEVICES=GPU-7 OMP_NUM_THREADS=2 {sys.executable} -P -m epochal run-job "
        f"{waiting.file} --device cuda:0"
    )
