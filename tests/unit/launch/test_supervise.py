"""A run is looked after: started again when it dies, given up when that is of no use."""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

import pytest

from epochal.launch import supervise
from epochal.launch.farewell import Home
from epochal.launch.supervise import Commands, keep_alive
from epochal.launch.ticket import find_ticket
from epochal.records.mail import Mailbox
from epochal.records.metrics import read_lines

STUB = str(Path(__file__).with_name("stub.py"))


class Saved:
    def __init__(self, step: int) -> None:
        self.step = step


class Looked:
    """What became of a run that was looked after."""

    def __init__(self, folder: Path, *acts: dict[str, Any], limit: int = 2) -> None:
        self.folder = folder
        self.told: list[str] = []
        self.delays: list[float] = []
        (folder / "plan.json").write_text(json.dumps(acts))
        program = [sys.executable, "-S", STUB, str(folder)]
        commands = Commands(
            start=[*program, "run"],
            resume=lambda run: [*program, "resume", run.name],
            find_home=lambda: Home(root=folder, tag="stub"),
        )
        self.ticket = find_ticket("stub", commands.start)
        self.code = keep_alive(
            commands,
            self.ticket,
            limit=limit,
            tell=self.told.append,
            wait=lambda wish, seconds: self.delays.append(seconds),
        )

    @property
    def calls(self) -> list[list[str]]:
        lines = (self.folder / "calls.jsonl").read_text().splitlines()
        return [json.loads(line) for line in lines]

    def events(self, name: str = "a") -> list[dict[str, Any]]:
        return read_lines(self.folder / name / "events.jsonl")[0]

    def subjects(self) -> list[str]:
        return [mail.subject for mail in Mailbox(self.folder).mails()]


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A folder of its own, and checkpoints that are a file with a number."""

    def newest_valid(folder: Path) -> tuple[Saved | None, list[object]]:
        path = folder / "step"
        return (Saved(int(path.read_text())) if path.exists() else None), []

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(supervise, "newest_valid", newest_valid)


def ran(step: int = 0, saved: int | None = None, **more: Any) -> dict[str, Any]:
    """A process of the run ``a`` that came as far as ``step``."""
    kept = {} if saved is None else {"saved": saved}
    return {"folder": "a", "step": step, **kept, **more}


FINISHED: dict[str, Any] = {"folder": "a", "step": 9, "status": "finished", "code": 0}


def test_a_run_that_finishes_is_not_started_again(tmp_path: Path) -> None:
    looked = Looked(tmp_path, FINISHED)
    assert (looked.code, looked.calls, looked.told) == (0, [["run"]], [])
    assert not looked.ticket.is_open
    assert not looked.ticket.run_file.exists()


@pytest.mark.parametrize("death", [{"signal": signal.SIGKILL}, {"code": 1}, {"code": 71}])
def test_a_run_that_dies_goes_on_from_its_checkpoint(tmp_path: Path, death: dict[str, int]) -> None:
    looked = Looked(tmp_path, ran(5, saved=4, **death), FINISHED)
    assert (looked.code, looked.calls) == (0, [["run"], ["resume", "a"]])
    (event,) = looked.events()
    assert (event["kind"], event["step"]) == ("restart", 5)
    assert looked.delays == [1.0]
    assert "starting again in 1 s" in looked.told[0]


def test_a_killed_run_was_at_least_as_far_as_its_checkpoint(tmp_path: Path) -> None:
    looked = Looked(tmp_path, ran(5, saved=8, signal=signal.SIGKILL), FINISHED)
    assert "the run was killed by SIGKILL at step 8" in looked.told[0]


def test_a_cross_validation_goes_on_from_its_folds(tmp_path: Path) -> None:
    killed = [ran(folds={"1": 9}, signal=9), ran(folds={"1": 9, "2": 4}, signal=9)]
    looked = Looked(tmp_path, *killed, FINISHED, limit=1)
    assert looked.calls == [["run"], ["resume", "a"], ["resume", "a"]]
    assert looked.told[1].startswith("the run was killed by SIGKILL at step 13")


def test_a_run_without_a_checkpoint_begins_anew(tmp_path: Path) -> None:
    looked = Looked(tmp_path, {"code": 1}, ran(3, code=1), FINISHED)
    assert (looked.code, looked.calls) == (0, [["run"]] * 3)
    assert looked.delays == [1.0, 2.0]


def test_a_run_that_begins_anew_knows_which_one_it_retries(tmp_path: Path) -> None:
    Looked(tmp_path, {"code": 1}, ran(3, code=1), FINISHED | {"folder": "b"})
    told = [json.loads((tmp_path / name / "run.json").read_text())["told"] for name in "ab"]
    assert told == ["", "retried:a"]


def test_a_run_that_goes_on_retries_nothing(tmp_path: Path) -> None:
    Looked(tmp_path, ran(5, saved=4, code=1), FINISHED)
    assert json.loads((tmp_path / "a" / "run.json").read_text())["told"] == ""


@pytest.mark.parametrize("code", [2, 66, 78, 130])
def test_what_another_start_would_not_change_is_left(tmp_path: Path, code: int) -> None:
    looked = Looked(tmp_path, ran(5, saved=4, code=code))
    assert (looked.code, len(looked.calls)) == (code, 1)
    assert "another start would not change" in looked.told[0]
    assert not looked.ticket.is_open


def test_a_preempted_run_goes_on_as_often_as_it_takes(tmp_path: Path) -> None:
    looked = Looked(tmp_path, *[ran(5, saved=5, code=75, status="preempted")] * 6, FINISHED)
    assert (looked.code, len(looked.calls)) == (0, 7)
    assert looked.delays == [1.0] * 6


def test_it_is_given_up_when_starts_bring_it_no_further(tmp_path: Path) -> None:
    acts = [ran(step, saved=4, signal=signal.SIGKILL) for step in (5, 6, 7, 8)]
    looked = Looked(tmp_path, *acts, limit=2)
    assert looked.code == 128 + signal.SIGKILL
    assert looked.delays == [1.0, 1.0, 2.0]
    assert "given up, since 2 restarts brought it no further than step 4" in looked.told[-2]
    assert looked.told[-1] == "`epochal mail` has the whole story"
    assert [event["kind"] for event in looked.events()] == ["restart"] * 3 + ["gave_up"]
    assert looked.subjects() == [
        "given up: stub, it was killed by SIGKILL at step 8; "
        "2 restarts brought it no further than step 4"
    ]
    assert not looked.ticket.is_open


def test_a_crash_loop_at_one_step_is_named_with_its_error(tmp_path: Path) -> None:
    looked = Looked(tmp_path, *[ran(7, saved=4, code=1)] * 3, limit=99)
    assert looked.code == 1
    assert looked.told[-2].startswith(
        "the run ended with code 1 at step 7 (ValueError: torn); "
        "given up, since it failed 3 times at step 7"
    )


def test_starts_that_bring_it_further_are_free(tmp_path: Path) -> None:
    acts = [ran(step + 1, saved=step, code=1) for step in range(1, 9)]
    looked = Looked(tmp_path, *acts, FINISHED, limit=0)
    assert (looked.code, looked.delays) == (0, [1.0] * 8)


def test_a_run_that_was_killed_when_it_was_done_is_done(tmp_path: Path) -> None:
    looked = Looked(tmp_path, {**FINISHED, "signal": signal.SIGKILL})
    assert (looked.code, len(looked.calls)) == (0, 1)


def test_a_later_supervisor_goes_on_with_what_an_earlier_one_left(tmp_path: Path) -> None:
    program = [sys.executable, "-S", STUB, str(tmp_path)]
    ticket = find_ticket("stub", [*program, "run"])
    ticket.open([])
    (tmp_path / "a" / "checkpoints").mkdir(parents=True)
    (tmp_path / "a" / "checkpoints" / "step").write_text("4")
    ticket.run_file.write_text(str(tmp_path / "a"))
    assert Looked(tmp_path, FINISHED).calls == [["resume", "a"]]


@pytest.mark.parametrize(
    ("sent", "code", "is_left"),
    [(signal.SIGTERM, 75, True), (signal.SIGHUP, 75, True), (signal.SIGINT, 130, False)],
)
def test_who_stops_the_supervisor_stops_the_run(
    tmp_path: Path, sent: int, code: int, is_left: bool
) -> None:
    before = [signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)]
    usual = signal.signal(signal.SIGUSR2, lambda *_: os.kill(os.getpid(), sent))
    try:
        looked = Looked(tmp_path, ran(5, saved=4, waits=os.getpid()))
    finally:
        signal.signal(signal.SIGUSR2, usual)
    assert (looked.code, len(looked.calls)) == (code, 1)
    assert looked.ticket.is_open is is_left
    assert [signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)] == before


def test_who_stops_the_supervisor_while_it_waits_need_not_wait(tmp_path: Path) -> None:
    (tmp_path / "plan.json").write_text(json.dumps([ran(5, saved=4, code=1)]))
    command = [sys.executable, "-S", STUB, str(tmp_path), "run"]
    code = keep_alive(
        Commands(start=command, resume=lambda _: command),
        find_ticket("stub", command),
        limit=3,
        tell=lambda _: os.kill(os.getpid(), signal.SIGTERM),
    )
    assert code == 1
