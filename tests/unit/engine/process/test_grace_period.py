"""A run that hangs when it gets SIGTERM ends within its grace period, with stacks."""

from __future__ import annotations

import os
import signal
import socket
import threading
from typing import TYPE_CHECKING, Any

import pytest

from engine.parts import fit, make_run
from epochal.engine import Train
from epochal.engine.execute import execute
from epochal.engine.process.grace_period import GracePeriod
from epochal.engine.process.signals import Preemption
from epochal.testing import MemoryRecord

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from epochal.engine.run.engine_run import EngineRun


@pytest.fixture(autouse=True)
def _signals_are_not_ignored() -> Iterator[None]:
    """Under nohup SIGHUP is ignored, and ignored signals stay ignored in a run."""
    before = signal.signal(signal.SIGHUP, signal.SIG_DFL)
    yield
    signal.signal(signal.SIGHUP, before)


def hang(number: int, step: int = 2) -> Any:
    """A listener that signals its own process at a step, and then waits for ever."""

    def act(run: EngineRun) -> None:
        if run.step == step:
            os.kill(os.getpid(), number)
            threading.Event().wait()

    return act


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_the_first_signal_ends_a_run_that_hangs(
    number: int, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    run = make_run(for_="9ep", setting={"dir": tmp_path}, engine={"grace_period": "0.2s"})
    run.on("onTrainBatchStart", hang(number))
    result = execute(run, Train())
    assert (result.status, result.exit_code, result.steps) == ("preempted", 75, 2)
    assert result.message == "it made no progress"
    stacks = tmp_path / "logs" / "stacks.txt"
    assert "test_grace_period.py" in stacks.read_text()
    assert (
        f"ending the run at step 2 without a save; the stacks of all threads are in {stacks}"
        in (caplog.text)
    )
    assert signal.set_wakeup_fd(-1) == -1
    assert "epochal-grace" not in {thread.name for thread in threading.enumerate()}


def test_a_run_that_still_works_is_not_ended() -> None:
    progress, over, ended = iter(range(10**9)), threading.Event(), []
    preemption = Preemption(make_run())
    grace = GracePeriod(
        make_run(), preemption, 0.001, progress=lambda: next(progress), end_process=ended.append
    )
    threading.Timer(0.05, over.set).start()
    grace.enforce(over)
    assert (ended, preemption.is_overdue) == ([], False)


def test_a_main_thread_that_cannot_be_interrupted_is_ended_with_its_process() -> None:
    codes: list[int] = []
    memory_record = MemoryRecord()
    run = make_run(setting={"writer": memory_record})
    preemption = Preemption(run)
    preemption.is_overdue = True  # it was interrupted in vain
    grace = GracePeriod(run, preemption, 0.01, progress=lambda: 0, end_process=codes.append)
    grace.enforce(threading.Event())
    assert codes == [75]
    assert memory_record.statuses == [("preempted", {"reason": "stalled", "step": 0, "epoch": 0})]


def test_an_event_loop_keeps_its_own_pipe() -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        theirs.setblocking(False)
        signal.set_wakeup_fd(theirs.fileno())
        try:
            assert fit(make_run(for_="1st")).steps == 1
        finally:
            assert signal.set_wakeup_fd(-1) == theirs.fileno()


def test_signals_of_forked_processes_are_not_those_of_the_run() -> None:
    found: list[int] = []

    def fork() -> None:
        child = os.fork()
        if child == 0:
            os._exit(signal.set_wakeup_fd(-1) + 1)
        found.append(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))

    run = make_run(for_="1st")
    run.on("onTrainBatchStart", fork)
    assert fit(run).steps == 1
    assert found == [0]
