"""The queue keeps jobs in order, across processes, and says why a job cannot start."""

from __future__ import annotations

import json
import sqlite3
from typing import TYPE_CHECKING

import pytest

from epochal.errors import RecordError
from epochal.launch.queue.queue import Queue
from epochal.records.index import Index
from epochal.records.project.project_database import get_database_path
from pooled import waiting_jobs

if TYPE_CHECKING:
    from pathlib import Path


def make_queue(tmp_path: Path) -> Queue:
    return Queue(tmp_path / "runs", clock=lambda: 1000.0)


def add(queue: Queue, count: int = 1, **options: object) -> list[int]:
    jobs = waiting_jobs(queue.runs_dir / "batch", count)
    return [job.id for job in queue.add(jobs, **options)]  # type: ignore[arg-type]


def waiting(queue: Queue) -> list[int]:
    return [job.id for job in queue.list_jobs("waiting")]


def write_run(folder: Path, status: str) -> Path:
    folder.mkdir(parents=True)
    (folder / "run.json").write_text("{}")
    (folder / "status.json").write_text(json.dumps({"status": status}))
    return folder


def test_an_unused_queue_is_empty_and_writes_nothing(tmp_path: Path) -> None:
    queue = make_queue(tmp_path)
    assert queue.list_jobs() == []
    assert not queue.is_paused
    assert not queue.runs_dir.exists()


def test_jobs_wait_by_priority_then_in_their_order(tmp_path: Path) -> None:
    queue = make_queue(tmp_path)
    assert add(queue, 2) == [1, 2]
    assert add(queue, 1, priority=5) == [3]
    assert add(queue, 1, priority=-1) == [4]
    assert waiting(queue) == [3, 1, 2, 4]
    assert waiting(Queue(queue.runs_dir)) == [3, 1, 2, 4]  # another process sees the same
    job = queue.get(1)
    assert (job.title, job.state, job.added, job.run_dir) == ("1.yaml", "waiting", 1000.0, None)


def test_top_lets_a_job_start_next(tmp_path: Path) -> None:
    queue = make_queue(tmp_path)
    add(queue, 3)
    add(queue, 1, priority=5)
    queue.move_to_top(2)
    assert waiting(queue) == [2, 4, 1, 3]
    queue.move_to_top(3)
    assert waiting(queue) == [3, 2, 4, 1]


def test_remove_takes_a_waiting_job_out_and_asks_a_running_one_to_stop(tmp_path: Path) -> None:
    queue = make_queue(tmp_path)
    add(queue, 2)
    queue.update(2, ["waiting"], state="running")
    assert queue.remove(1).state == "removed"
    running = queue.remove(2)
    assert (running.state, running.is_unwanted) == ("running", True)
    with pytest.raises(RecordError, match="job 1 is removed, not waiting or running"):
        queue.remove(1)
    with pytest.raises(RecordError, match="there is no job 9 in the queue"):
        queue.remove(9)


def test_pause_holds_one_job_or_all(tmp_path: Path) -> None:
    queue = make_queue(tmp_path)
    add(queue, 2)
    queue.set_paused(True, 1)
    obstacles = queue.find_obstacles(queue.list_jobs("waiting"))
    assert {key: (one.text, one.is_lasting) for key, one in obstacles.items()} == {
        1: ("paused", True)
    }
    queue.set_paused(True)
    assert queue.is_paused
    assert set(queue.find_obstacles(queue.list_jobs("waiting"))) == {1, 2}
    queue.set_paused(False)
    queue.set_paused(False, 1)
    assert queue.find_obstacles(queue.list_jobs("waiting")) == {}


def test_a_job_waits_for_what_it_depends_on(tmp_path: Path) -> None:
    queue = make_queue(tmp_path)
    add(queue, 1)
    runs = {
        status: write_run(queue.runs_dir / "p" / "t" / f"20261116-00000{i}-abcd", status)
        for i, status in enumerate(("finished", "failed", "preempted"))
    }
    rows = {
        ("1",): ("job 1 is waiting", False),
        ("1", runs["failed"].name): (f"run {runs['failed'].name} failed", True),
        (str(runs["preempted"]),): (f"run {runs['preempted'].name} is preempted", True),
        (runs["finished"].name,): None,
    }
    for after, expected in rows.items():
        (number,) = add(queue, 1, after=after)
        found = queue.find_obstacle(queue.get(number))
        assert (found and (found.text, found.is_lasting)) == expected, after
    for state, expected in {
        "running": ("job 1 is running", False),
        "failed": ("job 1 failed", True),
        "removed": ("job 1 is removed", True),
        "finished": None,
    }.items():
        queue.update(1, [queue.get(1).state], state=state)
        found = queue.find_obstacle(queue.get(2))
        assert (found and (found.text, found.is_lasting)) == expected, state
    with pytest.raises(RecordError, match="there is no job 77"):
        add(queue, 1, after=["77"])
    with pytest.raises(RecordError):
        add(queue, 1, after=["no-such-run"])


def test_old_ended_jobs_are_forgotten_unless_another_needs_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("epochal.launch.queue.queue.MAX_ENDED", 2)
    queue = make_queue(tmp_path)
    add(queue, 5)
    add(queue, 1, after=["1"])
    for number in range(1, 6):
        queue.update(number, ["waiting"], state="finished", ended=float(number))
    queue.forget_ended()
    assert [job.id for job in queue.list_jobs("finished")] == [1, 4, 5]


def test_frozen_files_are_removed_with_the_last_job_that_needs_them(tmp_path: Path) -> None:
    queue = make_queue(tmp_path)
    add(queue, 2)
    batch = queue.get(1).file.parent
    queue.remove(1)
    assert batch.is_dir()
    queue.remove(2)
    assert not batch.exists()


def test_a_foreign_or_damaged_database_is_not_touched(tmp_path: Path) -> None:
    for number, make in enumerate((_write_foreign, _write_later, _write_garbage)):
        queue = Queue(tmp_path / str(number))
        path = get_database_path(queue.runs_dir)
        path.parent.mkdir(parents=True)
        make(path)
        before = path.read_bytes()
        with pytest.raises(RecordError, match=r"project\.db: "):
            queue.list_jobs()
        assert path.read_bytes() == before


def _write_foreign(path: Path) -> None:
    with sqlite3.connect(path) as connection:
        connection.execute("CREATE TABLE mine (x)")
    connection.close()


def _write_later(path: Path) -> None:
    with sqlite3.connect(path) as connection:
        connection.execute("PRAGMA application_id = 1162891088")
        connection.execute("PRAGMA user_version = 99")
        connection.execute("CREATE TABLE jobs (x)")
    connection.close()


def _write_garbage(path: Path) -> None:
    path.write_bytes(b"no database" * 1000)


def test_rebuilding_the_index_never_touches_the_queue(tmp_path: Path) -> None:
    queue = make_queue(tmp_path)
    add(queue, 2)
    with Index.open(queue.runs_dir) as index:
        index.refresh(is_all=True)
    assert waiting(queue) == [1, 2]
