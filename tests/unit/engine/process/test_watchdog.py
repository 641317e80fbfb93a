"""Tests of the watchdog, which reports a run that hangs."""

from __future__ import annotations

import faulthandler
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

import pytest

import forked
from engine.parts import Hands, fit, make_run
from epochal.engine.process.watchdog import Watchdog
from epochal.testing import MemoryRecord

if TYPE_CHECKING:
    from collections.abc import Iterator

    from epochal.engine.run.engine_run import EngineRun


@pytest.fixture
def stacks(tmp_path: Path) -> Iterator[TextIO]:
    """A file for stacks; nothing is written to it later."""
    with (tmp_path / "stacks.txt").open("w") as file:
        yield file
        faulthandler.cancel_dump_traceback_later()


def watched(
    stacks: TextIO | None,
    on_stall: Any = lambda words, step: None,
    memory_record: MemoryRecord | None = None,
    **choices: Any,
) -> tuple[Watchdog, EngineRun, Hands, MemoryRecord]:
    memory_record, hands = memory_record or MemoryRecord(), Hands()
    run = make_run(setting={"writer": memory_record})
    watchdog = Watchdog(
        run, 60.0, position=run.position, on_stall=on_stall, stacks=stacks, now=hands, **choices
    )
    return watchdog, run, hands, memory_record


def test_a_hang_is_reported_once(stacks: TextIO, caplog: pytest.LogCaptureFixture) -> None:
    watchdog, run, hands, memory_record = watched(stacks)
    run.step = 7
    watchdog.check_progress()
    hands.seconds = 59.0
    watchdog.check_progress()
    assert not memory_record.events
    for hands.seconds in (61.0, 90.0, 140.0):
        watchdog.check_progress()
    ((kind, data),) = memory_record.events
    assert kind == "hang"
    assert data == {"step": 7, "split": "train", "seconds": 61, "stacks": stacks.name}
    assert "test_a_hang_is_reported_once" in Path(stacks.name).read_text()
    (line,) = caplog.messages
    assert line.startswith("no progress for 61 s in train at step 7: the stacks of all threads")
    assert "engine.hang_after sets another time, 0 disables" in line


def test_process_is_not_ended_while_it_asks_the_others(
    stacks: TextIO, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[str] = []
    for name in ("dump_traceback_later", "cancel_dump_traceback_later"):
        monkeypatch.setattr(faulthandler, name, lambda *_, name=name, **__: calls.append(name))
    watchdog, _, hands, _ = watched(stacks, describe_others=lambda: calls.append("ask") or "")
    hands.seconds = 60.0
    watchdog.check_progress()
    monkeypatch.undo()
    at = calls.index("ask")
    assert calls[at - 1 : at + 2] == ["cancel_dump_traceback_later", "ask", "dump_traceback_later"]


def test_steps_epochs_and_batches_are_progress() -> None:
    for name in ("step", "epoch", "batch_index"):
        watchdog, run, hands, memory_record = watched(None)
        for hands.seconds in (50.0, 100.0, 150.0):
            setattr(run, name, getattr(run, name) + 1)
            watchdog.check_progress()
        assert not memory_record.events, name


def test_a_second_hang_is_reported_too(caplog: pytest.LogCaptureFixture) -> None:
    reported: list[tuple[str, int]] = []
    watchdog, run, hands, memory_record = watched(None, lambda *values: reported.append(values))
    for hands.seconds in (30.0, 60.0, 61.0, 100.0, 121.0):
        watchdog.check_progress()
        run.step = int(hands.seconds >= 60)
    assert [data["step"] for _, data in memory_record.events] == [0, 1]
    assert reported[0] == ("no progress for 60 s in train at step 0", 0)
    assert "the run may hang" in caplog.text  # there is no file for stacks


def test_a_call_that_blocks_all_threads_is_reported_afterwards(
    stacks: TextIO, caplog: pytest.LogCaptureFixture
) -> None:
    watchdog, run, hands, memory_record = watched(stacks)
    watchdog.check_progress()
    run.step, hands.seconds = 1, 75.0
    watchdog.check_progress()
    hands.seconds = 100.0
    watchdog.check_progress()
    ((_, data),) = memory_record.events
    assert data["seconds"] == 75
    assert "at step 1, in a call that blocks all other threads: the stacks" in caplog.text


HELD = """
import ctypes, os, sys
from pathlib import Path
import epochal as ep
from epochal.testing import TinyModel, TinyTask

class Holding(ep.Hook):
    def step_end(self, run):
        if run.step == 2:
            held_by_foreign_code(Path(run.dir, "logs", "stacks.txt"))

def held_by_foreign_code(path):
    # PyDLL keeps the interpreter's lock during the call: no thread of Python runs.
    library = ctypes.PyDLL(None)
    while "held_by_foreign_code" not in path.read_text():  # a slow first step is a hang, too
        library.usleep(300_000)
    os._exit(0)

ep.Experiment(
    task=TinyTask(), model=TinyModel(), optim={"type": "SGD", "lr": 0.1}, train={"for": "3st"},
    engine={"hang_after": "0.1s"}, hooks=[Holding()], record={"log_dir": sys.argv[1]},
    choices={"device": "cpu"},
).fit()
"""


def test_stacks_are_written_while_c_code_holds_the_gil(tmp_path: Path) -> None:
    done = forked.run("-c", HELD, str(tmp_path / "runs"), cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    (path,) = tmp_path.rglob("stacks.txt")
    assert "held_by_foreign_code" in path.read_text()


def test_a_file_that_cannot_be_opened_does_not_stop_the_run(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "logs").write_text("in the way")
    run = make_run(for_="1st", setting={"dir": tmp_path})
    fit(run)
    assert "the stacks of threads in a hang cannot be recorded" in caplog.text


def test_an_event_that_cannot_be_written_is_only_logged(caplog: pytest.LogCaptureFixture) -> None:
    class Full(MemoryRecord):
        def event(self, kind: str, **data: Any) -> None:
            raise OSError("no space left")

    watchdog, _, hands, _ = watched(None, memory_record=Full())
    for hands.seconds in (31.0, 61.0):
        watchdog.check_progress()
    assert "could not be recorded: no space left" in caplog.text
    assert "no progress for" in caplog.text


def test_a_run_without_a_hang_leaves_no_file(tmp_path: Path) -> None:
    fit(make_run(for_="2st", setting={"dir": tmp_path}))
    assert not (tmp_path / "logs" / "stacks.txt").exists()


def test_the_watchdog_runs_as_long_as_the_run(tmp_path: Path) -> None:
    reported = threading.Event()

    class Listening(MemoryRecord):
        def event(self, kind: str, **data: Any) -> None:
            super().event(kind, **data)
            reported.set()

    run = make_run(
        for_="2st",
        setting={"dir": tmp_path, "writer": Listening()},
        engine={"hang_after": "0.05s"},
    )
    run.on("onTrainBatchStart", lambda: reported.wait(30))
    fit(run)
    assert reported.is_set()
    assert "epochal-watchdog" not in {thread.name for thread in threading.enumerate()}


def test_zero_disables_the_watchdog() -> None:
    names: set[str] = set()
    run = make_run(for_="1st", engine={"hang_after": 0})
    run.on("step_end", lambda: names.update(one.name for one in threading.enumerate()))
    fit(run)
    assert "epochal-watchdog" not in names
