"""A run that stands still is noticed, told of once, and its stacks are on disk."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

import pytest

from engine.parts import Hands, fit, make_run
from epochal.engine.options import EngineOptions
from epochal.engine.watchdog import Watchdog, write_stacks
from epochal.errors import ConfigError
from epochal.testing import Ledger

if TYPE_CHECKING:
    from pathlib import Path

    from epochal.engine.run import Run


def watched(tmp_path: Path) -> tuple[Watchdog, Run, Hands, Ledger]:
    ledger, hands = Ledger(), Hands()
    run = make_run(setting={"dir": tmp_path, "writer": ledger})
    return Watchdog(run, 60.0, now=hands), run, hands, ledger


def test_a_run_that_stands_still_is_told_of_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    watchdog, run, hands, ledger = watched(tmp_path)
    run.step = 7
    watchdog.look()
    hands.seconds = 59.0
    watchdog.look()
    assert not ledger.events
    for hands.seconds in (61.0, 500.0):
        watchdog.look()
    ((kind, data),) = ledger.events
    (path,) = (tmp_path / "logs").iterdir()
    assert kind == "hang"
    assert data == {"step": 7, "split": "train", "seconds": 61, "stacks": str(path)}
    (line,) = caplog.messages
    assert line.startswith("nothing has happened for 61 s in train at step 7: what all threads")
    assert "engine.hang_after=0" in line


@pytest.mark.parametrize("sign", ["step", "epoch", "batch_index"])
def test_steps_and_batches_are_signs_of_progress(tmp_path: Path, sign: str) -> None:
    watchdog, run, hands, ledger = watched(tmp_path)
    for hands.seconds in (50.0, 100.0, 150.0):
        setattr(run, sign, getattr(run, sign) + 1)
        watchdog.look()
    assert not ledger.events


def test_a_second_hang_is_told_of_too(tmp_path: Path) -> None:
    watchdog, run, hands, ledger = watched(tmp_path)
    for hands.seconds in (60.0, 61.0, 121.0):
        watchdog.look()
        run.step = 1
    assert [data["step"] for _, data in ledger.events] == [0, 1]


def test_without_a_folder_only_the_log_tells(caplog: pytest.LogCaptureFixture) -> None:
    hands = Hands()
    watchdog = Watchdog(make_run(), 60.0, now=hands)
    hands.seconds = 61.0
    watchdog.look()
    assert "is something stuck?" in caplog.text


def test_a_record_that_cannot_be_written_disturbs_nobody(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "logs").write_text("in the way")
    watchdog, _, hands, _ = watched(tmp_path)
    hands.seconds = 61.0
    watchdog.look()
    assert "could not be recorded" in caplog.text
    assert "nothing has happened" in caplog.text


def test_stacks_name_the_function_that_is_stuck(tmp_path: Path) -> None:
    is_there, is_over = threading.Event(), threading.Event()

    def stuck_in_a_lock() -> None:
        is_there.set()
        is_over.wait()

    thread = threading.Thread(target=stuck_in_a_lock)
    thread.start()
    is_there.wait()
    text = write_stacks(tmp_path).read_text()
    is_over.set()
    thread.join()
    assert "stuck_in_a_lock" in text
    assert "test_stacks_name_the_function_that_is_stuck" in text


def test_a_thread_looks_on_while_the_run_lasts(tmp_path: Path) -> None:
    told = threading.Event()

    class Listening(Ledger):
        def event(self, kind: str, **data: Any) -> None:
            super().event(kind, **data)
            told.set()

    run = make_run(
        for_="2st",
        setting={"dir": tmp_path, "writer": Listening()},
        engine={"hang_after": "0.05s"},
    )
    run.on("onTrainBatchStart", lambda: told.wait(30))
    fit(run)
    assert told.is_set()
    assert "epochal-watchdog" not in {thread.name for thread in threading.enumerate()}


@pytest.mark.parametrize("value", [0, "0"])
def test_zero_looks_at_nothing(value: object) -> None:
    names: set[str] = set()
    run = make_run(for_="1st", engine={"hang_after": value})
    run.on("step_end", lambda: names.update(one.name for one in threading.enumerate()))
    fit(run)
    assert "epochal-watchdog" not in names


def test_only_a_time_can_be_too_long() -> None:
    with pytest.raises(ConfigError, match=r"engine\.hang_after: must be a time, got '5st'"):
        EngineOptions(hang_after="5st")  # type: ignore[arg-type]  # as a user writes it
