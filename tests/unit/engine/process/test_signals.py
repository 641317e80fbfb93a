"""SIGTERM, SIGUSR1, SIGHUP at any point of a run: it ends at a step boundary, saved, with 75."""

from __future__ import annotations

import os
import signal
from typing import TYPE_CHECKING, Any

import pytest
import torch
from torch.utils.data import DataLoader, Dataset

from engine.parts import EventRecorder, Sums, adder, fit, make_run
from epochal.engine import RunResult, Train
from epochal.engine.execute import execute
from epochal.engine.process.signals import (
    Preemption,
    SignalSafeLog,
    is_interrupted_or_preempted,
)
from epochal.engine.state.saver import Saver
from epochal.errors import Preempted
from resume import Keeper, Notes, Outcome, assert_same, follow, resume

if TYPE_CHECKING:
    from epochal.engine.run.engine_run import EngineRun

HANDLED = [signal.SIGTERM, signal.SIGUSR1, signal.SIGHUP]


def send(number: int = signal.SIGTERM, times: int = 1) -> None:
    for _ in range(times):
        os.kill(os.getpid(), number)


def at_step(step: int, number: int = signal.SIGTERM, times: int = 1) -> Any:
    """A listener that sends signals once the run has done that many steps."""

    def act(run: EngineRun) -> None:
        if run.step == step:
            send(number, times)

    return act


@pytest.mark.parametrize("number", HANDLED)
def test_a_signal_inside_a_step_ends_the_run_after_that_step(
    number: int, caplog: pytest.LogCaptureFixture
) -> None:
    before = signal.getsignal(number)
    run = make_run(for_="9ep")
    run.on("onTrainBatchStart", at_step(2, number))
    result = fit(run)
    assert (result.status, result.reason) == ("preempted", "preempted")
    assert (result.steps, result.exit_code, result.ok) == (3, 75, False)
    assert "saving after this step, then ending" in caplog.text
    assert signal.getsignal(number) is before


def test_signal_after_the_death_of_a_rank_names_the_rank(caplog: pytest.LogCaptureFixture) -> None:
    for killed, expected in (
        (3, "rank 3 has died: this process ends, too"),
        (None, "SIGTERM: saving after this step, then ending; SIGTERM again ends it at once"),
    ):
        caplog.clear()
        run = make_run()
        run.step = 1
        preemption = Preemption(run, find_killed=lambda killed=killed: killed)
        preemption.handle_signal(signal.SIGTERM)
        preemption.signal_log.finish()
        assert caplog.messages == [expected]


IN_STEP = ("onTrainBatchStart", "onTrainBatchEnd")
BETWEEN = ("step_end", "eval_start", "loop_end", "eval_end", "onEpochEnd", "onEpochStart")


@pytest.mark.parametrize("event", [*IN_STEP, *BETWEEN])
@pytest.mark.parametrize("step", [3, 5, 10])  # within an epoch, and at ends of two
def test_a_signal_at_any_event_ends_the_run_at_the_next_boundary(event: str, step: int) -> None:
    seen: list[int] = []
    run = make_run(for_="9ep", eval_every="1st", sanity_batches=0)

    def act(run: EngineRun) -> None:
        if run.step >= step and not seen:
            seen.append(run.step)
            send()

    run.on(event, act)
    result = fit(run)
    assert (result.status, result.exit_code) == ("preempted", 75)
    assert result.steps == seen[0] + (event in IN_STEP)
    assert seen[0] == (5 if step == 3 and "Epoch" in event else step)


def test_a_preempted_epoch_has_no_end_events() -> None:
    recorder = EventRecorder(
        "step_end", "loop_end", "epoch_end", "stage_end", "run_end", "teardown"
    )
    run = make_run(hooks=(recorder,), for_="9ep", eval_at_end=True)
    run.on("onTrainBatchStart", at_step(2))
    fit(run)
    assert recorder.entries == ["step_end 1", "step_end 2", "run_end", "teardown"]


def test_due_calls_stay_due_when_the_run_is_preempted() -> None:
    recorder = EventRecorder("step_end", "eval_start")
    run = make_run(hooks=(recorder,), for_="9ep", eval_every="2st")
    run.on("onTrainBatchStart", at_step(1))
    dues: list[tuple[str, float]] = []
    run.on("run_end", lambda run: dues.extend((due.name, due.at) for due in run.plan.dues))
    fit(run)
    assert recorder.entries == ["step_end 1"]
    assert ("EventRecorder.step_end", 2) in dues
    assert ("evaluate val", 2) in dues


@pytest.mark.parametrize("is_in_epoch", [True, False])
def test_due_calls_run_after_a_resume(is_in_epoch: bool) -> None:
    happened: list[str] = []
    run = make_run(for_="9ep", eval_every="1ep", sanity_batches=0)
    run.on("step_end", lambda: happened.append("hook"), every="2st")

    def restore(run: EngineRun) -> None:
        run.step, run.epoch, run.is_in_epoch = 2, 1, is_in_epoch
        run.plan.catch_up(run)
        run.plan.catch_up(run)
        run.stop("enough")

    run.on("eval_start", lambda: happened.append("evaluation"))
    run.on("epoch_start", lambda run: restore(run) if run.split == "train" else None)
    fit(run)
    assert happened == (["hook"] if is_in_epoch else ["evaluation", "hook"])


def test_a_preempted_evaluation_is_due_again() -> None:
    recorder = EventRecorder("batch_end", "eval_end")
    dues: dict[str, float] = {}
    run = make_run(Sums(val=20), hooks=(recorder,), for_="9ep", eval_every="3st", sanity_batches=0)
    run.on("on_validation_batch_start", lambda index: send() if index == 1 else None)
    run.on("run_end", lambda run: dues.update({due.name: due.at for due in run.plan.dues}))
    result = fit(run)
    assert (result.status, result.steps, result.exit_code) == ("preempted", 3, 75)
    assert recorder.entries[-2:] == ["batch_end val 0", "batch_end val 1"]
    assert dues["evaluate val"] == 3
    assert "val/mae" not in result.metrics


def test_an_evaluation_started_by_a_hook_is_interrupted_too() -> None:
    run = make_run(Sums(val=20), for_="9ep", eval_every=0, sanity_batches=0)
    run.on("step_end", lambda run: run.evaluate() if run.step == 2 else None)
    run.on("on_validation_batch_start", lambda: send())
    result = fit(run)
    assert (result.status, result.steps, result.message) == ("preempted", 2, "")


def test_an_evaluation_that_is_not_due_again_is_finished() -> None:
    run = make_run(Sums(val=20), for_="9ep", eval_every=0, sanity_batches=0)
    run.on("onEpochEnd", lambda run: run.evaluate())
    run.on("on_validation_batch_start", lambda run, index: send() if index == 0 else None)
    result = fit(run)
    assert (result.status, result.steps, result.exit_code) == ("preempted", 5, 75)
    assert (result.epochs, "val/mae" in result.metrics) == (1, True)


@pytest.mark.parametrize("event", ["setup", "assembled", "run_start", "eval_start", "batch_start"])
def test_before_the_first_step_the_run_ends_at_once(event: str) -> None:
    recorder = EventRecorder("step_end", "run_end", "teardown")
    run = make_run(hooks=(recorder,), for_="9ep", eval_at_start=True)
    run.on(event, lambda: send())
    result = execute(run, Train())
    assert (result.status, result.steps, result.exit_code) == ("preempted", 0, 75)
    assert recorder.entries[-1] == "teardown"
    assert "step_end 1" not in recorder.entries


def test_the_second_sigterm_ends_the_run_at_once() -> None:
    recorder = EventRecorder("step_end", "error", "run_end")
    run = make_run(hooks=(recorder,), for_="9ep")
    run.on("onTrainBatchStart", at_step(2, times=2))
    result = execute(run, Train())
    assert (result.status, result.steps, result.exit_code) == ("preempted", 2, 75)
    assert recorder.entries[-2:] == ["error Preempted", "run_end"]


def test_sigusr1_does_not_count_as_the_first_sigterm() -> None:
    run = make_run(for_="9ep")
    run.on("onTrainBatchStart", at_step(2, signal.SIGUSR1, times=2))
    run.on("onTrainBatchStart", at_step(2, signal.SIGTERM))
    assert fit(run).steps == 3


@pytest.mark.parametrize("event", ["run_end", "teardown"])
def test_a_signal_does_not_change_a_run_that_is_ending(
    event: str, caplog: pytest.LogCaptureFixture
) -> None:
    run = make_run(for_="3st")
    run.on(event, lambda: send())
    result = fit(run)
    assert (result.status, result.reason, result.exit_code) == ("finished", "max_steps", 0)
    assert "already ending" in caplog.text


def test_the_last_evaluation_of_a_training_is_finished() -> None:
    run = make_run(for_="3st", eval_every=0, eval_at_end=True, sanity_batches=0)
    run.on("eval_start", lambda: send())
    result = fit(run)
    assert (result.status, result.reason) == ("finished", "max_steps")
    assert "val/mae" in result.metrics


def test_a_failure_while_the_run_is_ending_early_is_a_failure() -> None:
    run = make_run(for_="9ep")
    run.on("onTrainBatchStart", at_step(2))
    run.on("onTrainBatchEnd", lambda run: 1 / 0 if run.step == 2 else None)
    result = execute(run, Train())
    assert (result.status, result.exception_type) == ("failed", "ZeroDivisionError")


class Signalled(Dataset[list[torch.Tensor]]):
    """Signals the process that reads it, as a scheduler does with all processes of a job."""

    draws_random = False  # so that nothing is read twice to see whether it does

    def __init__(self, number: int) -> None:
        self.number = number

    def __len__(self) -> int:
        return 4

    def __getitem__(self, index: int) -> list[torch.Tensor]:
        if index == 0:
            os.kill(os.getpid(), self.number)
        return [torch.ones(3), torch.ones(1)]


@pytest.mark.parametrize("number", HANDLED)
def test_loader_workers_survive_the_first_signal(
    number: int, capfd: pytest.CaptureFixture[str]
) -> None:
    task = Sums(val=0)
    task.train_loader = DataLoader(Signalled(number), batch_size=2, num_workers=1)
    result = fit(make_run(task, for_="1ep"))
    assert (result.status, result.steps) == ("finished", 2)
    assert "ending" not in capfd.readouterr().err


def forked(number: int) -> int:
    """How a forked process ends that is signalled."""
    child = os.fork()
    if child == 0:  # pytest must not continue in this process
        os.kill(os.getpid(), number)
        os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def test_forked_processes_keep_the_default_handlers() -> None:
    codes: list[int] = []
    run = make_run(for_="1st")
    run.on("step_end", lambda: codes.extend(forked(number) for number in HANDLED))
    assert fit(run).status == "finished"
    assert codes == [-number for number in HANDLED]


def test_user_handlers_work_in_forked_processes_and_are_restored() -> None:
    def mine(number: int, frame: object) -> None:
        os._exit(41)

    before = signal.signal(signal.SIGUSR1, mine)
    try:
        codes: list[int] = []
        run = make_run(for_="1st")
        run.on("step_end", lambda: codes.append(forked(signal.SIGUSR1)))
        fit(run)
        assert codes == [41]
        assert signal.getsignal(signal.SIGUSR1) is mine
    finally:
        signal.signal(signal.SIGUSR1, before)


def test_an_ignored_signal_stays_ignored() -> None:
    before = signal.signal(signal.SIGTERM, signal.SIG_IGN)
    try:
        run = make_run(for_="2st")
        run.on("onTrainBatchStart", lambda: send())
        assert fit(run).reason == "max_steps"
    finally:
        signal.signal(signal.SIGTERM, before)


def test_a_save_is_requested_only_after_the_first_step() -> None:
    run = make_run()
    preemption = Preemption(run)
    with pytest.raises(Preempted, match="SIGTERM ended the run at once"):
        preemption.handle_signal(signal.SIGTERM)
    assert (run.save_reasons, run.plan.next_due) == ("", 0)
    run.step = 4
    preemption.handle_signal(signal.SIGUSR1)
    assert run.save_reasons == "preempted"
    assert is_interrupted_or_preempted(run)


def build(setting: dict[str, Any]) -> EngineRun:
    """Three epochs of five steps, with everything that a boundary can have."""
    run = make_run(
        Sums(val=20),
        adder(dropout=0.2),
        for_="3ep",
        eval_every="2st",
        sanity_batches=0,
        setting=setting,
    )
    run.on("step_end", lambda run: run.log({"own": run.step}), every="3st")
    return run


def preempt(event: str, step: int) -> tuple[Keeper, Notes, RunResult]:
    """A run that is signalled at the first such event after some steps."""
    keeper, notes = Keeper(), Notes()
    sent: list[int] = []
    run = build({"writer": notes})
    run.set_part(Saver, keeper)  # type: ignore[arg-type]  # has all that the engine uses

    def act(run: EngineRun) -> None:
        if run.step >= step and not sent:
            sent.append(run.step)
            send()

    run.on(event, act)
    return keeper, notes, fit(run)


@pytest.fixture(scope="module")
def whole() -> Outcome:
    return follow(build)


@pytest.mark.parametrize("event", [*IN_STEP, *BETWEEN, "batch_start", "batch_end"])
@pytest.mark.parametrize("step", [1, 2, 4, 5, 9, 10])
def test_a_preempted_run_resumes_bitwise_equal(event: str, step: int, whole: Outcome) -> None:
    keeper, notes, result = preempt(event, step)
    state = keeper.kept[-1]
    assert (result.status, result.exit_code) == ("preempted", 75)
    assert state["data"]["step"] == result.steps
    assert len(notes.points) == state["log"]["points"]  # nothing is recorded after the save
    assert notes.points == whole.points[: len(notes.points)]
    assert_same(whole, resume(build, state), state)


def test_a_warning_waits_for_the_interrupted_log_line(
    caplog: pytest.LogCaptureFixture,
) -> None:
    log = SignalSafeLog()
    assert caplog.handler.lock is not None
    with caplog.handler.lock:
        log.warn("asked to %s", "end")
        assert not caplog.text
    log.finish()
    assert "asked to end" in caplog.text
