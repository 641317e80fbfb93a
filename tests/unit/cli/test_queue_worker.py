"""The worker beside the web server: what it starts, and how it ends."""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING

import pytest

from epochal.cli.queue_worker import ChildWorker
from epochal.launch.queue.queue import Queue
from pooled import waiting_jobs

if TYPE_CHECKING:
    from pathlib import Path


class FakeChild:
    """A process that ends after so many signals."""

    def __init__(self, command: list[str], *, needs: int = 1) -> None:
        self.command, self.needs = command, needs
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
    queue.update(1, ["waiting"], state="running")
    worker.stop()
    assert children[0].signals == [signal.SIGTERM]
    assert not worker.is_alive
    out = capsys.readouterr().out
    assert out == "the run saves and will be continued; Ctrl-C again kills\n"
    worker.stop()
    assert children[0].signals == [signal.SIGTERM], "it has ended already"


def test_ctrl_c_kills_what_takes_too_long(children, tmp_path: Path) -> None:
    worker = ChildWorker(tmp_path)
    worker.start_sweep("toy-1")
    worker.stop()
    assert children[1].signals == [signal.SIGTERM, signal.SIGTERM]
