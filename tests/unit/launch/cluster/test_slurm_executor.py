"""Slurm through submitit: job arrays, requeued after a preemption, stopped by a file."""

from __future__ import annotations

import json
import os
import select
import signal
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from epochal.errors import CANNOT_START_EXIT_CODE
from epochal.launch.cluster.slots import ClusterSlots
from epochal.launch.cluster.slurm_executor import SlurmExecutor
from epochal.launch.pool.pool import plan_start
from pooled import waiting_jobs

if TYPE_CHECKING:
    from epochal.launch.pool.executor import JobHandle, JobStart

submitit = pytest.importorskip("submitit")

SCRIPT = """#!{python} -S
import json, os, select, signal, sys
stops = []
signal.signal(signal.SIGTERM, lambda *_: stops.append(1))
with open("starts", "a") as file:
    facts = [os.getpid(), os.getppid(), os.environ["OMP_NUM_THREADS"], sys.argv[4:]]
    file.write(json.dumps(facts) + "\\n")
while not stops and not os.path.exists("go"):
    select.select([], [], [], 0.02)
sys.exit(75 if stops else 3)
"""


def plan(folder: Path, count: int = 1, **launch: Any) -> list[JobStart]:
    """Starts of jobs whose Python is a script that waits for the file ``go`` or for SIGTERM."""
    starts = []
    for waiting in waiting_jobs(folder, count):
        python = folder / "python"
        python.write_text(SCRIPT.format(python=sys.executable))
        python.chmod(0o700)
        job = replace(waiting.job, python=str(python), launch={"on": "slurm", **launch})
        job.write(waiting.file)
        lease = ClusterSlots("slurm").acquire()
        assert lease is not None
        starts.append(plan_start(replace(waiting, job=job), lease))
    return starts


def wait_for_starts(folder: Path, count: int, handle: JobHandle) -> list[Any]:
    file, found = folder / "starts", list[Any]()
    while len(found) < count:
        assert handle.poll() is None
        select.select([], [], [], 0.02)
        lines = file.read_text().splitlines(keepends=True) if file.exists() else []
        found = [json.loads(line) for line in lines if line.endswith("\n")]
    return found


def wait_for_end(handle: JobHandle) -> int:
    while (code := handle.poll()) is None:
        select.select([], [], [], 0.02)
    return code


def test_a_preempted_job_is_requeued_until_it_ends(tmp_path: Path) -> None:
    (start,) = plan(tmp_path / "jobs", cpus_per_node=3)
    handle = SlurmExecutor(cluster="local").submit(start)
    folder = start.file.parent
    (first,) = wait_for_starts(folder, 1, handle)
    os.kill(first[0], signal.SIGTERM)  # the process saves and ends with 75 by itself
    _, second = wait_for_starts(folder, 2, handle)
    os.kill(second[1], signal.SIGUSR2)  # Slurm warns that the time is over
    starts = wait_for_starts(folder, 3, handle)
    (folder / "go").touch()
    assert wait_for_end(handle) == 3
    assert [one[2:] for one in starts] == [["3", ["run-job", str(start.file)]]] * 3
    assert not start.file.with_suffix(".slurm").exists()


def test_a_stopped_job_saves_and_is_not_requeued(tmp_path: Path) -> None:
    (start,) = plan(tmp_path / "jobs", gpus_per_node=0)
    handle = SlurmExecutor(cluster="local").submit(start)
    ((*_, words),) = wait_for_starts(start.file.parent, 1, handle)
    assert words == ["run-job", str(start.file), "--device", "cpu"]
    handle.stop()
    assert wait_for_end(handle) == 75
    assert (handle.poll(), handle.waits_for) == (75, "")
    assert len((start.file.parent / "starts").read_text().splitlines()) == 1


class FakeJob(SimpleNamespace):
    """A running job of one task."""

    def task(self, number: int) -> FakeJob:
        return self

    def done(self) -> bool:
        return False


class FakeAutoExecutor:
    """Remembers what was submitted together."""

    arrays: list[Any]

    def __init__(self, folder: Path, cluster: str, **options: Any) -> None:
        self.parameters: dict[str, Any] = {}

    def update_parameters(self, **parameters: Any) -> None:
        self.parameters = parameters

    def submit_array(self, calls: list[Any]) -> list[Any]:
        if self.parameters.get("slurm_partition") == "closed":
            raise RuntimeError("sbatch: error: invalid partition specified: closed")
        self.arrays.append((self.parameters.get("gpus_per_node"), len(calls)))
        return [FakeJob(job_id=f"7_{i}", state="RUNNING") for i in range(len(calls))]


def test_jobs_that_start_together_and_need_the_same_are_one_array(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    FakeAutoExecutor.arrays = []
    monkeypatch.setattr(submitit, "AutoExecutor", FakeAutoExecutor)
    small, large = plan(tmp_path / "small", 3), plan(tmp_path / "large", 2, gpus_per_node=1)
    bad = plan(tmp_path / "bad", partition="closed")
    executor = SlurmExecutor()
    handles = [executor.submit(start) for start in (*small, *large, *bad)]
    assert handles[0].poll() is None
    assert FakeAutoExecutor.arrays == [(None, 3), (1, 2)]
    assert json.loads(small[2].file.with_suffix(".slurm").read_text())["id"] == "7_2"
    assert [one.poll() for one in handles] == [None] * 5 + [CANNOT_START_EXIT_CODE]
    assert "cannot be submitted: sbatch: error: invalid partition" in bad[0].log.read_text()


def test_a_later_worker_finds_the_job_that_slurm_still_has(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    state, cancelled = ["PENDING"], list[str]()

    class FakeSlurmJob:
        def __init__(self, folder: str, job_id: str) -> None:
            self.job_id = job_id
            self.paths = SimpleNamespace(result_pickle=Path(folder) / "result")

        state = property(lambda self: state[0])

        def done(self) -> bool:
            return state[0] not in ("PENDING", "RUNNING")

        def get_info(self, mode: str) -> None:
            pass

        def cancel(self, check: bool) -> None:
            cancelled.append(self.job_id)

        def result(self) -> int:
            return 4

    monkeypatch.setattr(submitit, "SlurmJob", FakeSlurmJob)
    (start,) = plan(tmp_path / "jobs")
    ids = start.file.with_suffix(".slurm")
    ends = {"NODE_FAIL": 75, "CANCELLED by 0": 130, "OUT_OF_MEMORY": -9, "COMPLETED": 4}
    for name, code in ends.items():
        ids.write_text(json.dumps({"folder": str(tmp_path), "id": "12_3"}))
        if name == "COMPLETED":
            (tmp_path / "result").touch()
        state[0] = "PENDING"
        handle = SlurmExecutor().submit(start)
        assert handle.poll() is None, name
        assert handle.waits_for == "waits in Slurm as job 12_3", name
        state[0] = name
        assert handle.poll() == code, name
        assert not ids.exists(), name
    assert cancelled == []
    ids.write_text(json.dumps({"folder": str(tmp_path), "id": "12_3"}))
    state[0] = "PENDING"
    handle = SlurmExecutor().submit(start)
    handle.stop()  # nothing runs that could save
    assert (handle.poll(), cancelled) == (75, ["12_3"])


def test_a_job_that_is_stopped_before_it_is_submitted_is_not(tmp_path: Path) -> None:
    executor = SlurmExecutor()
    first, second = (executor.submit(start) for start in plan(tmp_path / "jobs", 2))
    first.stop()
    second.kill()
    assert (first.poll(), second.poll()) == (75, -9)


def test_description_has_the_options_of_sbatch_and_the_command(tmp_path: Path) -> None:
    more = {"qos": "high"}
    options = {"partition": "gpu", "time": "90min", "memory_gb": 8, "gpus_per_node": 1}
    (start,) = plan(tmp_path / "jobs", **options, slurm=more)
    assert SlurmExecutor().describe(start) == (
        "sbatch --partition=gpu --time=90 --gpus-per-node=1 --cpus-per-task=1 --mem=8GB --requeue "
        f"--qos=high: OMP_NUM_THREADS=1 {start.job.python} -P -m epochal run-job {start.file} "
        "--device cuda:0"
    )
