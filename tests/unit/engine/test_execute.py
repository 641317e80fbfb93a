"""Tests of a run from its first event to its result."""

from __future__ import annotations

import gc
import os
import random
import signal
import threading
import weakref
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader, Dataset

from engine.parts import Diary, Sums, adder, fit, make_run
from epochal.durable import WriteError
from epochal.engine import Hook, Run, RunResult, TorchSchedule, Train, current_run
from epochal.engine.execute import describe_plan, execute, result_of_error
from epochal.engine.measure.meter import Meter
from epochal.errors import ConfigError, DataError, Problem, TaskError

EDGES = ("setup", "assembled", "run_start", "error", "run_end", "teardown")


class Broken(Hook):
    """Raises at one event."""

    def __init__(self, event: str, error: BaseException | None = None) -> None:
        setattr(self, event, self._break)
        self._error = error or ValueError(f"broken at {event}")

    def _break(self, run: Run) -> None:
        raise self._error


def test_events_around_a_run_come_in_order() -> None:
    diary = Diary(*EDGES)
    result = fit(make_run(hooks=(diary,), for_="1st"))
    assert diary.entries == ["setup", "assembled", "run_start", "run_end", "teardown"]
    assert result.status == "finished"


def test_an_error_is_told_and_everything_is_closed_in_order() -> None:
    diary = Diary(*EDGES)
    result = execute(make_run(hooks=(diary, Broken("step_end")), for_="1ep"), Train())
    assert diary.entries[3:] == ["error ValueError", "run_end", "teardown"]
    assert (result.status, result.reason, result.steps) == ("failed", "exception", 1)
    assert (result.exception_type, result.message) == ("ValueError", "broken at step_end")
    assert "raised in Broken.step_end, called at step_end" in result.traceback
    assert (result.ok, result.exit_code) == (False, 1)


def test_a_run_that_is_torn_apart_leaves_gradients_on() -> None:
    run = make_run(for_="1ep")
    run.on("step_end", lambda: torch.set_grad_enabled(False))
    execute(run, Train())
    assert torch.is_grad_enabled()


def test_an_error_before_the_run_started_has_no_run_end() -> None:
    diary = Diary(*EDGES)
    execute(make_run(hooks=(diary, Broken("setup"))), Train())
    assert diary.entries == ["setup", "error ValueError", "teardown"]


def test_every_hook_is_torn_down_even_if_one_raises() -> None:
    diary = Diary("teardown")
    hooks = (diary, Broken("teardown"), Broken("run_end"))
    result = execute(make_run(hooks=hooks, for_="1st"), Train())
    assert diary.entries == ["teardown"]
    assert result.message == "broken at run_end"
    assert "after that: ValueError('broken at teardown')" in result.traceback


def test_the_first_error_is_the_one_that_counts(caplog: pytest.LogCaptureFixture) -> None:
    result = execute(make_run(hooks=(Broken("run_start"), Broken("error_"), Telling())), Train())
    assert result.message == "broken at run_start"
    assert "while the run was ending" in caplog.text


class Telling(Hook):
    def error(self, run: Run, error: BaseException) -> None:
        raise RuntimeError("the teller fell silent")


def test_errors_are_raised_by_choice_after_everything_was_closed() -> None:
    diary = Diary("teardown")
    with pytest.raises(ValueError, match="broken at run_start"):
        execute(make_run(hooks=(diary, Broken("run_start"))), Train(), raise_errors=True)
    assert diary.entries == ["teardown"]


@pytest.mark.parametrize(
    ("error", "reason", "exit_code"),
    [
        (TaskError("x"), "exception", 70),
        (DataError("x"), "exception", 65),
        (ConfigError(Problem("a", "b")), "config", 78),
        (FileNotFoundError("my.csv"), "exception", 1),
        (WriteError(Path("a"), OSError(28, "full")), "disk_full", 74),
        (WriteError(Path("a"), OSError(5, "broken")), "exception", 74),
        (MemoryError(), "oom", 71),
        (torch.OutOfMemoryError("full"), "oom", 71),
        (RuntimeError("mine"), "exception", 1),
    ],
)
def test_every_kind_of_error_has_its_exit_code(
    error: Exception, reason: str, exit_code: int
) -> None:
    result = execute(make_run(hooks=(Broken("run_start", error),)), Train())
    assert (result.reason, result.exit_code) == (reason, exit_code)
    described = result_of_error(error)
    assert (described.reason, described.exit_code) == (reason, exit_code)


def test_a_request_to_leave_python_is_obeyed_after_closing() -> None:
    diary = Diary("teardown")
    with pytest.raises(SystemExit):
        execute(make_run(hooks=(diary, Broken("run_start", SystemExit(3)))), Train())
    assert diary.entries == ["teardown"]


@pytest.mark.parametrize("event", ["run_end", "teardown"])
@pytest.mark.parametrize("error", [KeyboardInterrupt(), SystemExit(4)])
def test_whatever_leaves_an_ending_hook_the_others_are_told_and_all_is_released(
    event: str, error: BaseException
) -> None:
    diary = Diary("run_end", "teardown")
    run = make_run(hooks=(Broken(event, error), diary, Broken(event, error)), max_time="1h")
    run.on("run_start", lambda run: run.stop("enough"))
    with pytest.raises(type(error)):
        execute(run, Train(), raise_errors=True)
    assert diary.entries == ["run_end", "teardown"]
    timers = [one for one in threading.enumerate() if isinstance(one, threading.Timer)]
    assert all(timer.finished.is_set() for timer in timers)
    assert not hasattr(run, "model")


def test_an_interrupt_while_the_run_ends_is_told_by_the_result() -> None:
    run = make_run(hooks=(Broken("run_end", KeyboardInterrupt()),), for_="1st")
    result = execute(run, Train())
    assert (result.status, result.reason, result.steps) == ("interrupted", "user_interrupt", 1)


@pytest.mark.parametrize(
    ("code", "expected"), [(3, 3), (None, 0), (0, 0), (True, 1), (-1, 255), (256, 0), ("no", 1)]
)
def test_a_request_to_leave_python_has_the_exit_code_of_the_process(
    code: Any, expected: int
) -> None:
    assert result_of_error(SystemExit(code)).exit_code == expected


def press(times: int) -> Any:
    return lambda: [os.kill(os.getpid(), signal.SIGINT) for _ in range(times)]


def test_the_first_interrupt_stops_after_the_step(caplog: pytest.LogCaptureFixture) -> None:
    handler = signal.getsignal(signal.SIGINT)
    diary = Diary("step_end", "epoch_end", "error", "run_end", "eval_start")
    run = make_run(hooks=(diary,), for_="9ep", eval_every="1st", eval_at_end=True)
    run.on("onTrainBatchStart", press(1))
    result = fit(run)
    assert (result.status, result.reason) == ("interrupted", "user_interrupt")
    assert (result.steps, result.exit_code) == (1, 130)
    assert diary.entries == ["step_end 1", "epoch_end train", "run_end"]
    assert "Ctrl-C again stops at once" in caplog.text
    assert signal.getsignal(signal.SIGINT) is handler


def test_the_second_interrupt_stops_at_once() -> None:
    handler = signal.getsignal(signal.SIGINT)
    diary = Diary("step_end", "error", "run_end")
    run = make_run(hooks=(diary,), for_="9ep")
    run.on("onTrainBatchStart", press(2))
    result = execute(run, Train())
    assert (result.status, result.reason, result.steps) == ("interrupted", "user_interrupt", 0)
    assert diary.entries == ["error KeyboardInterrupt", "run_end"]
    assert signal.getsignal(signal.SIGINT) is handler


def in_fork(work: Any) -> int:
    """The exit code of a forked process that does some work."""
    child = os.fork()
    if child == 0:  # nothing of pytest may go on in here
        try:
            work()
        except KeyboardInterrupt:
            os._exit(17)
        os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def test_a_forked_process_reacts_to_an_interrupt_as_it_did_before_the_run() -> None:
    codes: list[int] = []
    run = make_run(for_="1st")
    run.on("step_end", lambda: codes.append(in_fork(press(1))))
    assert fit(run).reason == "max_steps"
    assert codes == [17]


class Asking(Dataset[list[torch.Tensor]]):
    """Says with each sample whether a run can be found where it is read."""

    def __len__(self) -> int:
        return 4

    def __getitem__(self, index: int) -> list[torch.Tensor]:
        try:
            return [torch.ones(3), torch.tensor([float(current_run().step >= 0)])]
        except TaskError:
            return [torch.ones(3), torch.zeros(1)]


@pytest.mark.parametrize("workers", [0, 1])
def test_the_current_run_is_found_in_its_own_process_only(workers: int) -> None:
    seen: list[float] = []
    task = Sums(val=0)
    task.train_loader = DataLoader(Asking(), batch_size=2, num_workers=workers)
    task.batch_end = lambda batch: seen.extend(batch[1].flatten().tolist())
    fit(make_run(task, for_="1ep"))
    assert seen == [1.0 - workers] * 4


class Interrupted(Dataset[list[torch.Tensor]]):
    """Interrupts the process that reads it, as Ctrl-C does with a whole group of them."""

    def __len__(self) -> int:
        return 4

    def __getitem__(self, index: int) -> list[torch.Tensor]:
        os.kill(os.getpid(), signal.SIGINT)
        return [torch.ones(3), torch.ones(1)]


def test_workers_of_a_loader_leave_an_interrupt_to_the_run(
    capfd: pytest.CaptureFixture[str],
) -> None:
    task = Sums(val=0)
    task.train_loader = DataLoader(Interrupted(), batch_size=2, num_workers=1)
    result = fit(make_run(task, for_="1ep"))
    assert (result.status, result.steps) == ("finished", 2)
    assert "stopping" not in capfd.readouterr().err


def test_an_ignored_interrupt_stays_ignored() -> None:
    handler = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        run = make_run(for_="2st")
        run.on("onTrainBatchStart", press(1))
        assert fit(run).reason == "max_steps"
    finally:
        signal.signal(signal.SIGINT, handler)


def test_other_threads_run_without_touching_signals() -> None:
    results: list[RunResult] = []
    thread = threading.Thread(target=lambda: results.append(fit(make_run(for_="1st"))))
    thread.start()
    thread.join()
    assert results[0].steps == 1


def parts_in_use(*, fails: bool) -> tuple[RunResult, list[weakref.ref[Any]]]:
    model, task = adder(), Sums()
    optimizer = torch.optim.AdamW(model.parameters())
    schedule = TorchSchedule(torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.9))
    hooks = (Broken("step_end"),) if fails else ()
    run = make_run(
        task, model, hooks=hooks, parts={"optimizer": optimizer, "schedule": schedule}, for_="1ep"
    )
    run.on("run_start", lambda run: run.store.set("kept", run.model))
    result = execute(run, Train())
    return result, [weakref.ref(part) for part in (model, task, optimizer)]


@pytest.mark.parametrize("fails", [False, True])
def test_after_a_run_no_part_stays_in_memory_while_its_result_does(fails: bool) -> None:
    result, parts = parts_in_use(fails=fails)
    gc.collect()
    assert result.status == ("failed" if fails else "finished")
    assert [part() for part in parts] == [None, None, None]


def fail_at_once(run: Run) -> None:
    raise ValueError(f"at step {run.step}")


def used_model_and_task(*, fails: bool) -> list[weakref.ref[Any]]:
    model, task = adder(), Sums()
    run = make_run(task, model, for_="1ep")
    if fails:
        run.on("step_end", fail_at_once)
    execute(run, Train())
    return [weakref.ref(model), weakref.ref(task)]


@pytest.mark.parametrize("fails", [False, True])
def test_parts_are_freed_at_once_without_a_pass_of_the_garbage_collector(fails: bool) -> None:
    used_model_and_task(fails=fails)  # torch itself keeps a frame of the first optimizer made
    gc.disable()
    try:
        parts = used_model_and_task(fails=fails)
        assert [part() for part in parts] == [None, None]
    finally:
        gc.enable()


def test_the_store_is_empty_after_a_run() -> None:
    run = make_run(for_="1st")
    run.on("run_start", lambda run: run.store.set("kept", 1))
    fit(run)
    assert "kept" not in run.store


def test_random_numbers_of_the_caller_are_not_disturbed() -> None:
    random.seed(1)
    expected = random.random()
    random.seed(1)
    fit(make_run(for_="1st"))
    assert random.random() == expected


def test_options_of_the_machine_hold_for_the_run_only() -> None:
    seen: list[bool] = []
    run = make_run(for_="1st", engine={"deterministic": True})
    run.on("step_end", lambda: seen.append(torch.are_deterministic_algorithms_enabled()))
    fit(run)
    assert seen == [True]
    assert not torch.are_deterministic_algorithms_enabled()


def test_the_result_has_all_numbers() -> None:
    config = {"tag": "sums"}
    result = fit(make_run(for_="2ep", setting={"config": config}))
    assert (result.steps, result.epochs, result.samples) == (10, 2, 40)
    assert result.config == config
    assert result.seconds > 0
    assert {"train/loss", "val/mae", "train/epoch/loss"} <= set(result.metrics)
    assert result.exception_type is None


def test_an_interrupt_before_the_start_is_described_as_one() -> None:
    result = result_of_error(KeyboardInterrupt(), config={"a": 1})
    assert (result.status, result.reason, result.exit_code) == (
        "interrupted",
        "user_interrupt",
        130,
    )
    assert result.config == {"a": 1}


def test_the_plan_can_be_shown_without_running() -> None:
    diary = Diary()
    rows = describe_plan(make_run(hooks=(diary,), for_="3ep", max_time="1h"), Train())
    described = {(row.hook, row.cadence) for row in rows if row.event == "step_end"}
    assert described == {
        ("Diary.step_end", "each"),
        ("evaluate val", "1ep"),
        ("stop: max_epochs", "once at 3ep"),
        ("stop: max_time", "once at 1h"),
    }
    assert diary.entries == []


@pytest.mark.parametrize("is_failing", [False, True])
def test_means_that_cannot_be_delivered_at_the_end_do_not_hide_what_happened(
    is_failing: bool,
) -> None:
    run = make_run(for_="1st")

    def lose(means: dict[str, float]) -> None:
        raise OSError("the device is gone")

    def ask(run: Run) -> None:
        run.meter.window().read_later(lose)
        if is_failing:
            raise ValueError("first")

    def become_late(run: Run) -> None:
        run.meter = Meter(is_async=True)

    run.on("setup", become_late)
    run.on("stage_end", ask)
    with pytest.raises(ValueError if is_failing else OSError) as caught:
        fit(run)
    notes = getattr(caught.value, "__notes__", [])
    assert any("the device is gone" in note for note in notes) == is_failing
