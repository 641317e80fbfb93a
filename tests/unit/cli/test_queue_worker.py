"""The worker beside the web server: what it starts, and how it ends."""

from __future__ import annotations

import os
import signal
from typing import TYPE_CHECKING

import pytest

from epochal import durable
from epochal.cli import queue_worker
from epochal.cli.queue_worker import ChildWorker
from epochal.launch.queue.queue import Queue
from epochal.records.layout.process import describe_process
from pooled import waiting_jobs

if TYPE_CHECKING:
    from pathlib import Path


class FakeChild:
    """A process that ends after so many signals."""

    def __init__(self, command: list[str], *, needs: int = 1) -> None:
        self.command, self.needs = command, needs
        self.pid = os.getpid()
        self.signals: list[int] = []

    def poll(self) -> int | None:
        return 0 if len(self.signals) >= self.needs else None

    def send_signal(self, number: int) -> None:
        self.signals.append(number)

    def wait(self) -> int:
        if self.poll() is None:
            raise KeyboardInterrupt  # the user has no patience
        return 0


@pytest.fixture
def children(monkeypatch: pytest.MonkeyPatch) -> list[FakeChild]:
    """The processes that are started; each of them needs as many signals as its number."""
    found: list[FakeChild] = []

    def start(command, environment, *, output):
        found.append(FakeChild(command, needs=len(found) + 1))
        return found[-1]

    monkeypatch.setattr("epochal.cli.queue_worker.start_child", start)
    return found


def test_worker_runs_the_queue_and_sweeps(children, tmp_path: Path) -> None:
    worker = ChildWorker(tmp_path)
    worker.start_sweep("toy-1")
    assert [child.command[4:-1] for child in children] == [
        ["queue", "work", "--wait", "--runs-dir"],
        ["sweep", "toy-1", "--runs-dir"],
    ]
    assert worker.log.stat().st_mode & 0o077 == 0
    assert worker.is_alive


def test_jobs_save_when_the_worker_stops(children, tmp_path: Path, capsys) -> None:
    queue = Queue(tmp_path)
    queue.add(waiting_jobs(tmp_path / "jobs", 2))
    worker = ChildWorker(tmp_path)
    own = run_job(queue, 1, pid=os.getpid())
    worker.stop()
    assert children[0].signals == [signal.SIGTERM]
    assert not worker.is_alive
    saves, waits = capsys.readouterr().out.splitlines()
    assert saves == "the run saves and will be continued; Ctrl-C again kills"
    assert waits.startswith("1 job waits in the queue for `")
    assert waits.endswith(" queue work`")
    own.release()
    worker.stop()
    assert children[0].signals == [signal.SIGTERM], "it has ended already"


def run_job(queue: Queue, number: int, *, pid: int) -> durable.HeldLock:
    """Mark a job as one that the worker with this process id runs."""
    queue.update(number, ["waiting"], state="running")
    [job] = queue.list_jobs("running")
    facts = describe_process(pid) | {"job": number}
    held = durable.try_lock(job.file.with_suffix(".lock"), facts)
    assert held is not None
    return held


def test_jobs_of_another_worker_are_not_said_to_end(children, tmp_path: Path, capsys) -> None:
    queue = Queue(tmp_path)
    queue.add(waiting_jobs(tmp_path / "jobs", 1))
    worker = ChildWorker(tmp_path)
    other = run_job(queue, 1, pid=1)
    worker.stop()
    assert capsys.readouterr().out == ""
    other.release()


def test_second_server_keeps_the_log_of_the_first(
    children, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = ChildWorker(tmp_path)
    first.log.write_text("started 1\n")
    assert ChildWorker(tmp_path).log.read_text() == "started 1\n"
    monkeypatch.setattr(queue_worker, "_MAX_LOG_BYTES", 5)
    assert ChildWorker(tmp_path).log.read_text() == "", "a long one is not kept for ever"


def test_ctrl_c_kills_what_takes_too_long(children, tmp_path: Path) -> None:
    worker = ChildWorker(tmp_path)
    worker.start_sweep("toy-1")
    worker.stop()
    assert children[1].signals == [signal.SIGTERM, signal.SIGTERM]
