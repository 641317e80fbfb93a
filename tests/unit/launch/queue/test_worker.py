"""A worker runs the jobs of a queue, tries failures again, and finds jobs of dead workers."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from epochal import durable
from epochal.launch.pool.backlog import JobEnd
from epochal.launch.pool.pool import Pool
from epochal.launch.queue.queue import Queue
from epochal.launch.queue.worker import QueueBacklog, get_delay, list_ready
from epochal.records.folder.folder import Parent
from epochal.records.layout.process import host_name
from epochal.records.layout.run_status import EVALUATIONS
from pooled import ScriptedExecutor, make_leases, waiting_jobs

if TYPE_CHECKING:
    from pathlib import Path

    import pytest


@dataclass
class Scene:
    """A queue, a clock that stands still, and an executor with scripted codes."""

    folder: Path
    now: float = 1000.0

    def __post_init__(self) -> None:
        self.queue = Queue(self.folder / "runs", clock=lambda: self.now)
        self.executor = ScriptedExecutor()

    def add(self, count: int = 1, **options: Any) -> list[int]:
        batch = self.folder / f"batch{len(self.queue.list_jobs())}"
        return [job.id for job in self.queue.add(waiting_jobs(batch, count), **options)]

    def work(self, on_show: Any = lambda pool: None, per_device: int = 1) -> Pool:
        backlog = QueueBacklog(self.queue, clock=lambda: self.now)
        leases = make_leases(self.folder, per_device=per_device)
        pool = Pool(backlog, self.executor, leases, show=on_show, tick_seconds=0.001)
        pool.run()
        return pool

    def states(self) -> dict[int, str]:
        return {job.id: job.state for job in self.queue.list_jobs()}

    def run_of(self, number: int, status: str) -> Path:
        """A run folder that the process of a job would have reported."""
        job = self.queue.get(number)
        folder = self.queue.runs_dir / "p" / "t" / f"20261116-000000-{number:04x}"
        (folder / "config").mkdir(parents=True, exist_ok=True)
        (folder / "config" / "expanded.yaml").write_text("tag: x\n")
        (folder / "run.json").write_text(json.dumps({"runner": "train"}))
        (folder / "status.json").write_text(json.dumps({"status": status}))
        job.file.with_suffix(".run").write_text(str(folder))
        return folder


def test_jobs_run_in_order_until_none_is_left(tmp_path: Path) -> None:
    scene = Scene(tmp_path)
    scene.add(3)
    scene.queue.move_to_top(3)
    scene.work()
    assert [start.file.stem for start in scene.executor.starts] == ["3", "1", "2"]
    assert scene.states() == dict.fromkeys((1, 2, 3), "finished")
    assert scene.queue.get(1).device == "cpu"


def test_a_job_without_its_files_fails(tmp_path: Path) -> None:
    scene = Scene(tmp_path)
    scene.add(1)
    folder = scene.queue.get(1).file.parent
    folder.rename(tmp_path / "moved")
    scene.add(1)
    pools: list[Pool] = []

    def give_up(pool: Pool) -> None:
        pools.append(pool)
        assert len(pools) < 500, "the worker waits for a job that cannot start"

    scene.work(give_up)
    assert scene.states() == {1: "failed", 2: "finished"}
    assert scene.queue.get(1).error == f"its files are gone: {folder}"


def test_a_failed_job_is_tried_again_with_growing_delays(tmp_path: Path) -> None:
    assert [get_delay(n) for n in (1, 2, 3, 20)] == [30.0, 60.0, 120.0, 3600.0]
    scene = Scene(tmp_path)
    scene.add(1, retries=2)
    scene.executor.codes = {1: 1}
    waited: list[float] = []

    def pass_time(pool: Pool) -> None:
        job = scene.queue.get(1)
        if job.state == "waiting" and job.not_before > scene.now:
            obstacle = scene.queue.find_obstacle(job)
            assert obstacle is not None
            assert not obstacle.is_lasting
            waited.append(job.not_before - scene.now)
            scene.now = job.not_before

    scene.work(pass_time)
    assert waited == [30.0, 60.0]
    job = scene.queue.get(1)
    assert (job.state, job.failures, job.starts, job.code) == ("failed", 2, 3, 1)
    assert job.error == "ended with code 1"


def test_mistakes_that_a_retry_would_not_change_are_not_tried_again(tmp_path: Path) -> None:
    for code in (2, 66, 78, 79):
        scene = Scene(tmp_path / str(code))
        scene.add(1, retries=5)
        scene.executor.codes = {1: code}
        scene.work()
        assert (scene.queue.get(1).state, scene.queue.get(1).starts) == ("failed", 1), code


def test_a_retry_resumes_the_run(tmp_path: Path) -> None:
    scene = Scene(tmp_path)
    scene.add(1, retries=1)
    scene.executor.codes = {1: 1}

    def fail_then_succeed(pool: Pool) -> None:
        if pool.running:
            scene.run_of(1, "failed")
            scene.executor.codes = {1: 0}
        scene.now += 100

    scene.work(fail_then_succeed)
    first, second = scene.executor.starts
    assert first.resume is None
    assert second.resume == scene.queue.get(1).run_dir
    assert scene.states() == {1: "finished"}


def test_a_run_that_cannot_be_resumed_is_started_again(tmp_path: Path) -> None:
    scene = Scene(tmp_path)
    scene.add(1)
    folder = scene.run_of(1, "failed")
    (folder / "config" / "expanded.yaml").unlink()
    scene.queue.update(1, ["waiting"], run_dir=str(folder))
    (ready,) = list_ready(scene.queue)
    assert (ready.resume, ready.parent) == (None, Parent(folder.name, "retried"))


def test_runs_that_only_evaluate_are_started_again(tmp_path: Path) -> None:
    scene = Scene(tmp_path)
    scene.add(1)
    folder = scene.run_of(1, "preempted")
    scene.queue.update(1, ["waiting"], run_dir=str(folder))
    for runner in EVALUATIONS:
        (folder / "run.json").write_text(json.dumps({"runner": runner}))
        (ready,) = list_ready(scene.queue)
        assert (ready.resume, ready.parent) == (None, Parent(folder.name, "retried")), runner


def test_a_job_whose_dependency_failed_stays_and_the_worker_ends(tmp_path: Path) -> None:
    scene = Scene(tmp_path)
    scene.add(1)
    scene.add(1, after=["1"])
    scene.executor.codes = {1: 1}
    scene.work()
    assert scene.states() == {1: "failed", 2: "waiting"}


def test_dependent_jobs_start_after_their_dependency(tmp_path: Path) -> None:
    scene = Scene(tmp_path)
    scene.add(1)
    scene.add(1, after=["1"], priority=9)
    scene.work(per_device=2)
    assert scene.states() == {1: "finished", 2: "finished"}
    started = {job.id: job.file for job in scene.queue.list_jobs()}
    assert [start.file for start in scene.executor.starts] == [started[1], started[2]]


def test_stopped_and_preempted_jobs_wait_to_be_resumed(tmp_path: Path) -> None:
    scene = Scene(tmp_path)
    scene.add(2)
    scene.executor.codes = {1: None}
    scene.work(lambda pool: pool.advance("stopping") if pool.running else None)
    assert scene.states() == {1: "waiting", 2: "waiting"}
    assert scene.queue.get(1).failures == 0


def test_a_removed_running_job_is_stopped_and_others_continue(tmp_path: Path) -> None:
    scene = Scene(tmp_path)
    scene.add(2)
    scene.executor.codes = {1: None}

    def remove(pool: Pool) -> None:
        job = scene.queue.get(1)
        if job.state == "running" and not job.is_unwanted:
            scene.queue.remove(1)

    scene.work(remove)
    assert scene.executor.handles[1].calls == ["stop"]
    assert scene.states() == {1: "removed", 2: "finished"}


def test_drain_ends_workers_after_their_running_jobs(tmp_path: Path) -> None:
    scene = Scene(tmp_path)
    scene.add(2)
    scene.executor.codes = {1: None}

    def drain(pool: Pool) -> None:
        if pool.mode == "running":
            scene.queue.drain()
        else:
            scene.executor.handles[1].code = 0

    assert scene.work(drain).mode == "draining"
    assert scene.states() == {1: "finished", 2: "waiting"}
    scene.now += 1  # a worker that starts later is not meant
    scene.work()
    assert scene.states() == {1: "finished", 2: "finished"}


def test_a_paused_queue_starts_nothing(tmp_path: Path) -> None:
    scene = Scene(tmp_path)
    scene.add(1)
    scene.queue.set_paused(True)
    scene.work()
    assert scene.states() == {1: "waiting"}
    assert scene.executor.starts == []


def test_two_workers_never_take_the_same_job(tmp_path: Path) -> None:
    scene = Scene(tmp_path)
    scene.add(2)
    one, other = (QueueBacklog(scene.queue, clock=lambda: scene.now) for _ in range(2))
    first, second = one.take(), other.take()
    assert first is not None
    assert second is not None
    assert (first.key, second.key) == (1, 2)
    assert one.take() is None
    other.recover()  # both jobs have living processes
    assert scene.states() == {1: "running", 2: "running"}


TAKER = """
import sys
from pathlib import Path
from epochal.launch.queue.queue import Queue
from epochal.launch.queue.worker import QueueBacklog
backlog = QueueBacklog(Queue(Path(sys.argv[1])))
sys.stdin.read(1)
taken = []
while backlog.peek() is not None:
    one = backlog.take()
    if one is not None:
        taken.append(one)
print(*(one.key for one in taken))
"""


def test_workers_in_several_processes_share_the_jobs(tmp_path: Path) -> None:
    scene = Scene(tmp_path)
    ids = scene.add(24)
    words = [sys.executable, "-c", TAKER, str(scene.queue.runs_dir)]
    workers = [
        subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        for _ in range(3)
    ]
    for one in workers:
        assert one.stdin is not None
        one.stdin.write("!")
        one.stdin.flush()
    taken = [int(word) for one in workers for word in one.communicate()[0].split()]
    # A worker that has ended may have its jobs taken over, but none is lost or held twice.
    assert set(taken) == set(ids)
    scene.work()
    assert set(scene.states().values()) == {"finished"}
    assert len(scene.executor.starts) == len(ids)


def test_the_job_of_a_dead_worker_is_found_and_resumed(tmp_path: Path) -> None:
    scene = Scene(tmp_path)
    scene.add(1)
    dead = QueueBacklog(scene.queue, clock=lambda: scene.now).take()
    assert dead is not None
    assert dead.lock is not None
    folder = scene.run_of(1, "running")
    worker = QueueBacklog(scene.queue, clock=lambda: scene.now)
    worker.recover()
    assert scene.states() == {1: "running"}  # its process may still be saving
    dead.lock.release()
    scene.work()
    (start,) = scene.executor.starts
    assert start.resume == folder
    assert scene.states() == {1: "finished"}
    assert scene.queue.get(1).failures == 0


def test_a_worker_waits_for_the_end_of_an_orphaned_job(tmp_path: Path) -> None:
    scene = Scene(tmp_path)
    scene.add(1)
    dead = QueueBacklog(scene.queue, clock=lambda: scene.now).take()
    assert dead is not None
    assert dead.lock is not None
    dead.lock.write({"pid": 2**30, "host": host_name(), "process": "gone"})
    ticks: list[str] = []

    def end_late(pool: Pool) -> None:
        ticks.append(pool.mode)
        if len(ticks) == 3:
            assert scene.executor.starts == []
            dead.lock.release()

    scene.work(end_late)
    assert scene.states() == {1: "finished"}


def test_a_run_that_finished_without_its_worker_is_not_started_again(tmp_path: Path) -> None:
    scene = Scene(tmp_path)
    scene.add(1)
    dead = QueueBacklog(scene.queue, clock=lambda: scene.now).take()
    assert dead is not None
    assert dead.lock is not None
    scene.run_of(1, "finished")
    dead.lock.release()
    scene.work()
    assert scene.executor.starts == []
    assert scene.states() == {1: "finished"}


def test_a_resumed_job_has_as_many_threads_as_before(tmp_path: Path) -> None:
    scene = Scene(tmp_path)
    scene.add(1)
    backlog = QueueBacklog(scene.queue, clock=lambda: scene.now)
    taken = backlog.take()
    assert taken is not None
    backlog.begin(taken, "cpu", {"OMP_NUM_THREADS": "3", "CUDA_VISIBLE_DEVICES": ""})
    backlog.end(taken, JobEnd(code=75))
    (ready,) = list_ready(scene.queue)
    assert ready.environment == {"OMP_NUM_THREADS": "3"}


def test_jobs_without_files_fail(tmp_path: Path) -> None:
    scene = Scene(tmp_path)
    scene.add(2)
    scene.queue.update(2, ["waiting"], state="running")
    batch = scene.queue.get(1).file.parent
    durable.remove_tree(batch, "test")
    batch.mkdir()
    scene.work()
    errors = {job.id: job.error for job in scene.queue.list_jobs("failed")}
    assert "is no frozen job" in errors[1]
    assert errors[2] == "its files are gone"


def test_jobs_that_this_user_did_not_add_are_not_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scene = Scene(tmp_path)
    scene.add(2)
    with scene.queue.get(2).file.open("a") as file:
        file.write(" ")
    scene.work()
    assert [start.file.stem for start in scene.executor.starts] == ["1"]
    job = scene.queue.get(2)
    assert (job.state, job.error) == (
        "failed",
        "job 2 was not added by you, or was changed since",
    )
    (number,) = scene.add(1)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "another user"))
    scene.work()
    assert scene.queue.get(number).state == "failed"


def test_only_known_variables_of_an_earlier_start_are_used(tmp_path: Path) -> None:
    scene = Scene(tmp_path)
    scene.add(1)
    variables = {"LD_PRELOAD": "/tmp/evil.so", "OMP_NUM_THREADS": "2"}
    scene.queue.update(1, ["waiting"], environment=json.dumps(variables))
    (ready,) = list_ready(scene.queue)
    assert ready.environment == {"OMP_NUM_THREADS": "2"}
