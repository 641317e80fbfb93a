"""Tests of a run from its first event to its result."""

from __future__ import annotations

import errno
import gc
import multiprocessing.connection
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

from engine.parts import EventRecorder, Sums, adder, fit, make_run
from epochal.durable import WriteError
from epochal.engine import Hook, Run, RunResult, Train, current_run
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
    recorder = EventRecorder(*EDGES)
    result = fit(make_run(hooks=(recorder,), for_="1st"))
    assert recorder.entries == ["setup", "assembled", "run_start", "run_end", "teardown"]
    assert result.status == "finished"


def test_after_an_error_the_last_events_come_in_order() -> None:
    recorder = EventRecorder(*EDGES)
    result = execute(make_run(hooks=(recorder, Broken("step_end")), for_="1ep"), Train())
    assert recorder.entries[3:] == ["error ValueError", "run_end", "teardown"]
    assert (result.status, result.reason, result.steps) == ("failed", "exception", 1)
    assert (result.exception_type, result.message) == ("ValueError", "broken at step_end")
    assert "raised in Broken.step_end, called at step_end" in result.traceback
    assert (result.ok, result.exit_code) == (False, 1)


def test_gradients_are_enabled_again_after_a_run() -> None:
    run = make_run(for_="1ep")
    run.on("step_end", lambda: torch.set_grad_enabled(False))
    execute(run, Train())
    assert torch.is_grad_enabled()


def test_an_error_before_the_run_started_has_no_run_end() -> None:
    recorder = EventRecorder(*EDGES)
    execute(make_run(hooks=(recorder, Broken("setup"))), Train())
    assert recorder.entries == ["setup", "error ValueError", "teardown"]


def test_every_hook_is_torn_down_even_if_one_raises() -> None:
    recorder = EventRecorder("teardown")
    hooks = (recorder, Broken("teardown"), Broken("run_end"))
    result = execute(make_run(hooks=hooks, for_="1st"), Train())
    assert recorder.entries == ["teardown"]
    assert result.message == "broken at run_end"
    assert "after that: ValueError('broken at teardown')" in result.traceback


def test_the_same_error_of_several_hooks_is_shown_once() -> None:
    class Full(Hook):
        def run_end(self, run: Run) -> None:
            raise OSError("no space left")

    result = execute(make_run(hooks=(Full(), Full(), Broken("teardown")), for_="1st"), Train())
    assert result.message == "no space left"
    assert result.traceback.count("after that: ") == 1


def test_the_first_error_is_the_one_that_counts(caplog: pytest.LogCaptureFixture) -> None:
    result = execute(make_run(hooks=(Broken("run_start"), Telling())), Train())
    assert result.message == "broken at run_start"
    assert "while the run was ending" in caplog.text


class Telling(Hook):
    def error(self, run: Run, error: BaseException) -> None:
        raise RuntimeError("the teller fell silent")


def test_errors_can_be_raised_after_teardown() -> None:
    recorder = EventRecorder("teardown")
    with pytest.raises(ValueError, match="broken at run_start"):
        execute(make_run(hooks=(recorder, Broken("run_start"))), Train(), raise_errors=True)
    assert recorder.entries == ["teardown"]


def test_every_kind_of_error_has_its_reason_and_exit_code() -> None:
    table = [
        (TaskError("x"), "exception", 70),
        (DataError("x"), "exception", 65),
        (ConfigError(Problem("a", "b")), "config", 78),
        (FileNotFoundError("my.csv"), "exception", 1),
        (WriteError(Path("a"), OSError(28, "full")), "disk_full", 74),
        (WriteError(Path("a"), OSError(5, "broken")), "exception", 74),
        (MemoryError(), "oom", 71),
        (_failed_allocation(), "oom", 71),
        (OSError(errno.ENOMEM, "no memory for another process"), "oom", 71),
        (torch.OutOfMemoryError("full"), "oom", 71),
        (RuntimeError("mine"), "exception", 1),
        (KeyboardInterrupt(), "user_interrupt", 130),
    ]
    for error, reason, exit_code in table:
        result = execute(make_run(hooks=(Broken("run_start", error),)), Train())
        assert (result.reason, result.exit_code) == (reason, exit_code), error
        described = result_of_error(error)
        assert (described.reason, described.exit_code) == (reason, exit_code), error


def _failed_allocation() -> RuntimeError:
    with pytest.raises(RuntimeError) as caught:
        torch.empty(1 << 60, dtype=torch.uint8)
    return caught.value


class Rows(Dataset[list[torch.Tensor]]):
    def __len__(self) -> int:
        return 40

    def __getitem__(self, index: int) -> list[torch.Tensor]:
        return [torch.ones(3), torch.ones(1)]


@pytest.mark.usefixtures("dead_workers_are_noticed")
def test_a_worker_that_dies_during_a_step_is_an_error_of_the_data() -> None:
    """Torch's handler of SIGCHLD raises wherever the main thread is, here outside the loader."""
    task = Sums(val=0)
    task.train_loader = DataLoader(Rows(), batch_size=2, num_workers=1)
    run = make_run(task, for_="1ep")

    def kill() -> None:
        (worker,) = multiprocessing.active_children()
        worker.kill()
        multiprocessing.connection.wait([worker.sentinel])

    run.on("step_end", kill)
    result = execute(run, Train())
    assert (result.status, result.exit_code) == ("failed", 65), result.traceback
    assert result.message.startswith("train_loader: a worker process of the loader died")


@pytest.mark.usefixtures("dead_workers_are_noticed")
def test_a_signal_that_also_ends_workers_ends_the_run_as_the_signal_does() -> None:
    death = RuntimeError("DataLoader worker (pid 7) is killed by signal: Terminated. ")
    table = {signal.SIGTERM: ("preempted", 75), signal.SIGINT: ("interrupted", 130)}
    for number, expected in table.items():
        run = make_run(for_="9ep")

        def end(run: Run, number: int = number) -> None:
            if run.step == 2:
                os.kill(os.getpid(), number)
                raise death

        run.on("step_end", end)
        result = execute(run, Train())
        assert (result.status, result.exit_code) == expected, result.traceback
        assert result.steps == 2


def test_system_exit_is_raised_after_teardown() -> None:
    recorder = EventRecorder("teardown")
    with pytest.raises(SystemExit):
        execute(make_run(hooks=(recorder, Broken("run_start", SystemExit(3)))), Train())
    assert recorder.entries == ["teardown"]


@pytest.mark.parametrize("event", ["run_end", "teardown"])
@pytest.mark.parametrize("error", [KeyboardInterrupt(), SystemExit(4)])
def test_hooks_that_raise_at_the_end_do_not_stop_the_teardown(
    event: str, error: BaseException
) -> None:
    recorder = EventRecorder("run_end", "teardown")
    run = make_run(hooks=(Broken(event, error), recorder, Broken(event, error)), max_time="1h")
    run.on("run_start", lambda run: run.stop("enough"))
    with pytest.raises(type(error)):
        execute(run, Train(), raise_errors=True)
    assert recorder.entries == ["run_end", "teardown"]
    timers = [one for one in threading.enumerate() if isinstance(one, threading.Timer)]
    assert all(timer.finished.is_set() for timer in timers)
    assert not hasattr(run, "model")


def test_an_interrupt_at_run_end_is_the_result() -> None:
    run = make_run(hooks=(Broken("run_end", KeyboardInterrupt()),), for_="1st")
    result = execute(run, Train())
    assert (result.status, result.reason, result.steps) == ("interrupted", "user_interrupt", 1)


def test_system_exit_has_the_exit_code_of_the_process_but_never_0() -> None:
    for code, expected in ((3, 3), (None, 1), (0, 1), (True, 1), (-1, 255), (256, 1), ("no", 1)):
        assert result_of_error(SystemExit(code)).exit_code == expected, code


def press(times: int) -> Any:
    return lambda: [os.kill(os.getpid(), signal.SIGINT) for _ in range(times)]


def test_the_first_interrupt_stops_after_the_step(caplog: pytest.LogCaptureFixture) -> None:
    handler = signal.getsignal(signal.SIGINT)
    recorder = EventRecorder("step_end", "epoch_end", "error", "run_end", "eval_start")
    run = make_run(hooks=(recorder,), for_="9ep", eval_every="1st", eval_at_end=True)
    run.on("onTrainBatchStart", press(1))
    result = fit(run)
    assert (result.status, result.reason) == ("interrupted", "user_interrupt")
    assert (result.steps, result.exit_code) == (1, 130)
    assert recorder.entries == ["run_end"], "what is due stays due"
    assert "Ctrl-C again stops at once" in caplog.text
    assert signal.getsignal(signal.SIGINT) is handler


def test_the_second_interrupt_stops_at_once() -> None:
    handler = signal.getsignal(signal.SIGINT)
    recorder = EventRecorder("step_end", "error", "run_end")
    run = make_run(hooks=(recorder,), for_="9ep")
    run.on("onTrainBatchStart", press(2))
    result = execute(run, Train())
    assert (result.status, result.reason, result.steps) == ("interrupted", "user_interrupt", 0)
    assert recorder.entries == ["error KeyboardInterrupt", "run_end"]
    assert signal.getsignal(signal.SIGINT) is handler


def in_fork(work: Any) -> int:
    """The exit code of a forked process that does some work."""
    child = os.fork()
    if child == 0:  # pytest must not continue in this process
        try:
            work()
        except KeyboardInterrupt:
            os._exit(17)
        os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def test_forked_processes_keep_the_interrupt_handler() -> None:
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
def test_the_current_run_is_known_in_its_own_process_only(workers: int) -> None:
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


def test_loader_workers_ignore_interrupts(
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


def parts_in_use(*, fails: bool) -> tuple[RunResult, list[weakref.ref[Any]]]:
    model, task = adder(), Sums()
    run = make_run(task, model, for_="1ep")
    if fails:
        run.on("step_end", lambda: 1 / 0)
    run.on("run_start", lambda run: run.store.set("kept", run.model))
    result = execute(run, Train())
    return result, [weakref.ref(model), weakref.ref(task)]


@pytest.mark.parametrize("fails", [False, True])
def test_parts_are_freed_at_the_end_without_garbage_collection(fails: bool) -> None:
    parts_in_use(fails=fails)  # torch itself keeps a frame of the first optimizer made
    gc.disable()
    try:
        result, parts = parts_in_use(fails=fails)
        assert result.status == ("failed" if fails else "finished")
        assert [part() for part in parts] == [None, None]
    finally:
        gc.enable()


def test_the_store_is_empty_after_a_run() -> None:
    run = make_run(for_="1st")
    run.on("run_start", lambda run: run.store.set("kept", 1))
    fit(run)
    assert "kept" not in run.store


def test_random_generators_of_the_caller_do_not_change() -> None:
    random.seed(1)
    expected = random.random()
    random.seed(1)
    fit(make_run(for_="1st"))
    assert random.random() == expected


def test_engine_options_are_restored_after_the_run() -> None:
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
    assert set(result.metrics) == {"train/epoch/loss", "train/epoch/mae", "val/mae"}
    assert result.exception_type is None


def test_the_plan_can_be_shown_without_running() -> None:
    recorder = EventRecorder()
    rows = describe_plan(make_run(hooks=(recorder,), for_="3ep", max_time="1h"), Train())
    described = {(row.hook, row.cadence) for row in rows if row.event == "step_end"}
    assert described == {
        ("EventRecorder.step_end", "each"),
        ("evaluate val", "1ep"),
        ("stop: max_epochs", "once at 3ep"),
        ("stop: max_time", "once at 1h"),
    }
    assert recorder.entries == []


@pytest.mark.parametrize("is_failing", [False, True])
def test_means_that_cannot_be_delivered_at_the_end_do_not_hide_the_error(
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


def test_current_run_returns_the_run_in_progress() -> None:
    found: list[Run] = []
    run = make_run(for_="1st")
    run.on("step_end", lambda: found.append(current_run()))
    fit(run)
    assert found == [run]
    with pytest.raises(TaskError, match="current_run: no run is in progress here"):
        current_run()


def test_runs_may_be_nested_in_one_thread() -> None:
    inner: list[str] = []
    run = make_run(for_="2st")
    run.on("step_end", lambda: inner.append(fit(make_run(for_="1st")).status))
    assert fit(run).steps == 2
    assert inner == ["finished", "finished"]


def test_a_run_is_refused_while_another_thread_has_one() -> None:
    refused: list[BaseException] = []

    def start() -> None:
        try:
            fit(make_run(for_="1st"))
        except TaskError as error:
            refused.append(error)

    def start_in_thread() -> None:
        thread = threading.Thread(target=start)
        thread.start()
        thread.join()

    run = make_run(for_="1st")
    run.on("step_end", start_in_thread)
    assert fit(run).steps == 1
    assert "another thread has a run in progress" in str(refused[0])
    start_in_thread()
    assert len(refused) == 1
