"""A job on a node: starts when its run is free, and says what it does not see."""

from __future__ import annotations

import sys
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from epochal.errors import RecordError
from epochal.launch.cluster.node_job import (
    NodeJob,
    NodeStart,
    plan_node_start,
    plan_restart,
    restart_preempted,
)
from epochal.launch.cluster.slots import ClusterSlots
from epochal.launch.launch_options import LaunchOptions
from epochal.launch.pool.backlog import JobEnd, JobList
from epochal.launch.pool.devices import DeviceRequest
from epochal.launch.pool.pool import Pool, plan_start
from epochal.records.layout.lease import holding_lease
from pooled import ScriptedExecutor, ScriptedHandle, waiting_jobs

if TYPE_CHECKING:
    from pathlib import Path

    from epochal.launch.pool.executor import JobHandle, JobStart


def node_start(folder: Path, **changes: object) -> NodeStart:
    (waiting,) = waiting_jobs(folder, 1)
    start = NodeStart(file=waiting.file, device="cpu", log=waiting.log, run_file=waiting.run_file)
    return replace(start, **changes)  # type: ignore[arg-type]


def test_a_job_waits_until_its_run_is_free(tmp_path: Path) -> None:
    run_dir = tmp_path / "run"
    run_dir.mkdir()
    executor = ScriptedExecutor({1: None})
    start = node_start(tmp_path / "jobs", resume=run_dir)
    job = NodeJob(start, executor)
    with holding_lease(run_dir):
        assert (job.poll(), job.poll(), executor.starts, job.has_started) == (None, None, [], False)
    assert job.poll() is None
    assert (len(executor.starts), job.has_started) == (1, True)
    (line,) = start.log.read_text().splitlines()
    assert line.startswith("waiting until process ")
    executor.handles[1].code = 0
    assert job.poll() == 0


def test_a_job_that_is_stopped_before_its_start_never_starts(tmp_path: Path) -> None:
    executor = ScriptedExecutor()
    for end in (NodeJob.stop, NodeJob.kill):
        job = NodeJob(node_start(tmp_path / end.__name__), executor)
        end(job)
        assert (job.poll(), executor.starts) == (75, [])


def test_stop_and_kill_reach_the_process(tmp_path: Path) -> None:
    executor = ScriptedExecutor({1: None})
    job = NodeJob(node_start(tmp_path), executor)
    job.poll()
    job.stop()
    job.kill()
    assert executor.handles[1].calls == ["stop", "kill"]


def test_a_node_that_does_not_see_the_files_is_named(tmp_path: Path) -> None:
    start = node_start(tmp_path)
    start.file.unlink()
    with pytest.raises(RecordError, match=r"does not see .*1\.json\n  set record\.log_dir to a"):
        NodeJob(start).poll()


def test_a_node_without_the_python_of_the_submission_uses_its_own(tmp_path: Path) -> None:
    (waiting,) = waiting_jobs(tmp_path, 1)
    replace(waiting.job, python="/opt/gone/bin/python").write(waiting.file)
    executor = ScriptedExecutor()
    start = NodeStart(file=waiting.file, device="", log=waiting.log, run_file=waiting.run_file)
    NodeJob(start, executor).poll()
    assert executor.starts[0].job.python == sys.executable


def test_device_and_threads_come_from_what_the_cluster_gives(tmp_path: Path) -> None:
    (waiting,) = waiting_jobs(tmp_path, 1)
    options = LaunchOptions(cpus_per_node=6)
    for preferred, num_gpus, device in (
        ("", 1, "cuda:0"),
        ("cuda:3", 1, "cuda:0"),
        ("", 0, "cpu"),
        ("cpu", 1, "cpu"),
        ("", None, ""),
    ):
        lease = ClusterSlots("ray").acquire(DeviceRequest(preferred=preferred))
        assert lease is not None
        found = plan_node_start(plan_start(waiting, lease), options, num_gpus)
        assert (found.device, dict(found.environment)) == (device, {"OMP_NUM_THREADS": "6"}), device
    earlier = replace(waiting, environment={"OMP_NUM_THREADS": "2"})
    assert lease is not None
    assert plan_node_start(plan_start(earlier, lease), options, 0).environment == {
        "OMP_NUM_THREADS": "2"
    }
    job = replace(waiting.job, environment={"OMP_NUM_THREADS": "3"})
    mine = plan_start(replace(waiting, job=job), lease)
    assert plan_node_start(mine, options, 0).environment == {}


def test_a_preempted_job_starts_again_and_a_stopped_one_does_not(tmp_path: Path) -> None:
    (waiting,) = waiting_jobs(tmp_path, 1)
    empty = tmp_path / "20261116-000000-abcd"
    empty.mkdir()
    assert plan_restart(None) == (None, None)
    resume, parent = plan_restart(empty)  # killed before it wrote a record
    assert resume is None
    assert parent is not None
    assert (parent.run, parent.kind) == (empty.name, "retried")
    again = restart_preempted(waiting, JobEnd(code=75, run_dir=empty))
    assert again is not None
    assert again.parent == parent
    for end in (JobEnd(code=0), JobEnd(code=1), JobEnd(code=75, was_stopped=True)):
        assert restart_preempted(waiting, end) is None, end


class PreemptedOnce(ScriptedExecutor):
    def submit(self, start: JobStart) -> JobHandle:
        handle = super().submit(start)
        assert isinstance(handle, ScriptedHandle)
        handle.code = 75 if len(self.starts) == 1 else 0
        return handle


def test_a_pool_starts_preempted_jobs_again_within_the_slots(tmp_path: Path) -> None:
    jobs, executor = waiting_jobs(tmp_path, 3), PreemptedOnce()
    backlog, slots = JobList(jobs, restart=restart_preempted), ClusterSlots("ray", lambda: 1)
    obstacles = list[str]()

    def look(pool: Pool) -> None:
        obstacles.extend(pool.leases.obstacles.values())

    Pool(backlog, executor, slots, show=look, tick_seconds=0.001).run()
    assert [start.file.stem for start in executor.starts] == ["1", "2", "3", "1"]
    assert {key: end.code for key, end in backlog.ends.items()} == {1: 0, 2: 0, 3: 0}
    assert set(obstacles) == {"1 of 1 jobs at once"}
