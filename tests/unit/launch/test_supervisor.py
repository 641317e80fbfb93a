"""A supervised run is restarted when it dies, and given up when restarts do not help."""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

import pytest

from epochal.launch import supervisor
from epochal.launch.keep_alive_file import find_keep_alive_file
from epochal.launch.supervisor import MailSettings, SupervisedCommands, supervise
from epochal.records.mail.mailbox import Mailbox
from epochal.records.metrics.points import read_json_lines

STUB = str(Path(__file__).with_name("stub.py"))


class Saved:
    def __init__(self, step: int) -> None:
        self.step = step


class Supervised:
    """A run that was supervised to its end, and what happened."""

    def __init__(self, folder: Path, *acts: dict[str, Any], limit: int = 2) -> None:
        self.folder = folder
        self.told: list[str] = []
        self.delays: list[float] = []
        folder.mkdir(exist_ok=True)
        (folder / "plan.json").write_text(json.dumps(acts))
        program = [sys.executable, "-S", STUB, str(folder)]
        commands = SupervisedCommands(
            start=[*program, "run"],
            resume=lambda folder: [*program, "resume", folder.name],
            find_mail_settings=lambda: MailSettings(root=folder, tag="stub"),
        )
        self.file = find_keep_alive_file("stub", commands.start)
        self.code = supervise(
            commands,
            self.file,
            limit=limit,
            tell=self.told.append,
            wait=lambda stop, seconds: self.delays.append(seconds),
        )

    @property
    def calls(self) -> list[list[str]]:
        lines = (self.folder / "calls.jsonl").read_text().splitlines()
        return [json.loads(line) for line in lines]

    def events(self, name: str = "a") -> list[dict[str, Any]]:
        return read_json_lines(self.folder / name / "events.jsonl")[0]

    def subjects(self) -> list[str]:
        return [mail.subject for mail in Mailbox(self.folder).mails()]


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A separate folder, and checkpoints that are a file with a number."""

    def newest_valid(folder: Path) -> tuple[Saved | None, list[object]]:
        path = folder / "step"
        return (Saved(int(path.read_text())) if path.exists() else None), []

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(supervisor, "find_newest_checkpoint", newest_valid)


def ran(step: int = 0, saved: int | None = None, **more: Any) -> dict[str, Any]:
    """A process of the run ``a`` that ended at ``step``."""
    kept = {} if saved is None else {"saved": saved}
    return {"folder": "a", "step": step, **kept, **more}


FINISHED: dict[str, Any] = {"folder": "a", "step": 9, "status": "finished", "code": 0}


def test_a_finished_run_is_not_restarted(tmp_path: Path) -> None:
    run = Supervised(tmp_path, FINISHED)
    assert (run.code, run.calls, run.told) == (0, [["run"]], [])
    assert not run.file.exists
    assert not run.file.run_file.exists()


@pytest.mark.parametrize("death", [{"signal": signal.SIGKILL}, {"code": 1}, {"code": 71}])
def test_a_run_that_dies_is_resumed_from_its_checkpoint(
    tmp_path: Path, death: dict[str, int]
) -> None:
    run = Supervised(tmp_path, ran(5, saved=4, **death), FINISHED)
    assert (run.code, run.calls) == (0, [["run"], ["resume", "a"]])
    (event,) = run.events()
    assert (event["kind"], event["step"]) == ("restart", 5)
    assert run.delays == [1.0]
    assert "starting again in 1 s" in run.told[0]


def test_a_killed_run_reached_at_least_its_checkpoint(tmp_path: Path) -> None:
    run = Supervised(tmp_path, ran(5, saved=8, signal=signal.SIGKILL), FINISHED)
    assert "the run was killed by SIGKILL at step 8" in run.told[0]


def test_a_cross_validation_is_resumed_from_its_folds(tmp_path: Path) -> None:
    killed = [ran(folds={"1": 9}, signal=9), ran(folds={"1": 9, "2": 4}, signal=9)]
    run = Supervised(tmp_path, *killed, FINISHED, limit=1)
    assert run.calls == [["run"], ["resume", "a"], ["resume", "a"]]
    assert run.told[1].startswith("the run was killed by SIGKILL at step 13")


def test_a_run_without_a_checkpoint_starts_again(tmp_path: Path) -> None:
    run = Supervised(tmp_path, {"code": 1}, ran(3, code=1), FINISHED)
    assert (run.code, run.calls) == (0, [["run"]] * 3)
    assert run.delays == [1.0, 2.0]


def test_a_run_that_starts_again_knows_which_run_it_retries(tmp_path: Path) -> None:
    Supervised(tmp_path, {"code": 1}, ran(3, code=1), FINISHED | {"folder": "b"})
    told = [json.loads((tmp_path / name / "run.json").read_text())["told"] for name in "ab"]
    assert told == ["", "retried:a"]


def test_a_resumed_run_retries_nothing(tmp_path: Path) -> None:
    Supervised(tmp_path, ran(5, saved=4, code=1), FINISHED)
    assert json.loads((tmp_path / "a" / "run.json").read_text())["told"] == ""


def test_exit_codes_that_a_restart_would_not_change_are_final(tmp_path: Path) -> None:
    for code in (2, 66, 78, 130):
        run = Supervised(tmp_path / str(code), ran(5, saved=4, code=code))
        assert (run.code, len(run.calls)) == (code, 1)
        assert "another start would not change" in run.told[0]
        assert not run.file.exists


def test_preemptions_are_not_counted(tmp_path: Path) -> None:
    run = Supervised(tmp_path, *[ran(5, saved=5, code=75, status="preempted")] * 6, FINISHED)
    assert (run.code, len(run.calls)) == (0, 7)
    assert run.delays == [1.0] * 6


def test_a_run_is_given_up_when_restarts_make_no_progress(tmp_path: Path) -> None:
    acts = [ran(step, saved=4, signal=signal.SIGKILL) for step in (5, 6, 7, 8)]
    run = Supervised(tmp_path, *acts, limit=2)
    assert run.code == 128 + signal.SIGKILL
    assert run.delays == [1.0, 1.0, 2.0]
    assert "given up, since 2 restarts made no progress beyond step 4" in run.told[-2]
    assert run.told[-1] == "`epochal mail` has the details"
    assert [event["kind"] for event in run.events()] == ["restart"] * 3 + ["gave_up"]
    assert run.subjects() == [
        "given up: stub, it was killed by SIGKILL at step 8; "
        "2 restarts made no progress beyond step 4"
    ]
    assert not run.file.exists


def test_a_crash_loop_at_one_step_is_named_with_its_error(tmp_path: Path) -> None:
    run = Supervised(tmp_path, *[ran(7, saved=4, code=1)] * 3, limit=99)
    assert run.code == 1
    assert run.told[-2].startswith(
        "the run ended with code 1 at step 7 (ValueError: torn); "
        "given up, since it died 3 times in a row at step 7"
    )


def test_restarts_with_progress_are_not_counted(tmp_path: Path) -> None:
    acts = [ran(step + 1, saved=step, code=1) for step in range(1, 9)]
    run = Supervised(tmp_path, *acts, FINISHED, limit=1)
    assert (run.code, run.delays) == (0, [1.0] * 8)


def test_a_run_that_was_killed_after_its_end_is_done(tmp_path: Path) -> None:
    run = Supervised(tmp_path, {**FINISHED, "signal": signal.SIGKILL})
    assert (run.code, len(run.calls)) == (0, 1)


def test_a_run_that_diverged_is_not_restarted(tmp_path: Path) -> None:
    diverged = ran(9, saved=4, status="diverged")
    for number, end in enumerate(({"code": 79}, {"signal": signal.SIGKILL})):
        run = Supervised(tmp_path / str(number), {**diverged, **end})
        assert (run.code, run.calls) == (79, [["run"]]), end
        assert run.told[0].startswith("the run diverged at step 9"), end
        assert run.told[0].endswith("another start would not change that"), end


def test_a_later_supervisor_resumes_what_an_earlier_one_left(tmp_path: Path) -> None:
    program = [sys.executable, "-S", STUB, str(tmp_path)]
    file = find_keep_alive_file("stub", [*program, "run"])
    file.create([])
    (tmp_path / "a" / "checkpoints").mkdir(parents=True)
    (tmp_path / "a" / "checkpoints" / "step").write_text("4")
    file.run_file.write_text(str(tmp_path / "a"))
    assert Supervised(tmp_path, FINISHED).calls == [["resume", "a"]]


@pytest.mark.parametrize(
    ("sent", "code", "is_left"),
    [(signal.SIGTERM, 75, True), (signal.SIGHUP, 75, True), (signal.SIGINT, 130, False)],
)
def test_a_signal_to_the_supervisor_stops_the_run(
    tmp_path: Path, sent: int, code: int, is_left: bool
) -> None:
    before = [signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)]
    usual = signal.signal(signal.SIGUSR2, lambda *_: os.kill(os.getpid(), sent))
    try:
        run = Supervised(tmp_path, ran(5, saved=4, waits=os.getpid()))
    finally:
        signal.signal(signal.SIGUSR2, usual)
    assert (run.code, len(run.calls)) == (code, 1)
    assert run.file.exists is is_left
    assert [signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)] == before


def test_a_signal_ends_the_wait_before_a_restart(tmp_path: Path) -> None:
    (tmp_path / "plan.json").write_text(json.dumps([ran(5, saved=4, code=1)]))
    command = [sys.executable, "-S", STUB, str(tmp_path), "run"]
    code = supervise(
        SupervisedCommands(start=command, resume=lambda _: command),
        find_keep_alive_file("stub", command),
        limit=3,
        tell=lambda _: os.kill(os.getpid(), signal.SIGTERM),
    )
    assert code == 1
