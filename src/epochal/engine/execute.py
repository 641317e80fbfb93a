"""One run from its first event to its result, also when it fails."""

from __future__ import annotations

import logging
import os
import signal
import threading
import traceback
from bdb import BdbQuit
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

import torch
from torch.utils.data import get_worker_info

from epochal.distributed.fsdp import explain_mixed_tensors
from epochal.distributed.rank_failure import (
    RankFailedError,
    RankLostError,
    describe_message,
    report_error,
)
from epochal.durable import WriteError
from epochal.engine.device.memory import (
    explain_out_of_memory,
    is_disk_full,
    is_out_of_memory,
    keep_freed_memory,
)
from epochal.engine.device.move import explain_dtype_mismatch
from epochal.engine.device.seeding import applying_engine_options, derive_seed, seeded
from epochal.engine.evaluate import initialize_lazy_modules
from epochal.engine.feed.feed import explain_worker_death, is_worker_death, named_loaders
from epochal.engine.process.crash_log import recording_crashes
from epochal.engine.process.grace_period import enforcing_grace_period
from epochal.engine.process.signals import (
    PREEMPTED,
    Preemption,
    SignalSafeLog,
    handle_in_child,
    handling_preemption,
    ignore_worker_deaths,
    is_interrupted_or_preempted,
)
from epochal.engine.process.watchdog import open_stacks, watching_for_hangs, write_stacks
from epochal.engine.result import RunResult, select_result_metrics
from epochal.engine.run.agreement import ListenedPosition, describe_waiting_ranks, find_killed_rank
from epochal.engine.run.speed import read_device_time, read_speed, read_spent
from epochal.engine.run_context import making_current
from epochal.engine.snapshot.snapshot import keeping_training_modes
from epochal.engine.state.saver import Saver, save_if_requested
from epochal.engine.step.debug_losses import recording_forward_lines
from epochal.engine.step.shared_step import explain_shared_step
from epochal.engine.step.task_calls import TaskCalls, explain_wrong_call
from epochal.engine.step.torch_errors import explain_torch_error
from epochal.errors import (
    DIVERGED,
    INTERRUPTED_EXIT_CODE,
    OUT_OF_MEMORY_EXIT_CODE,
    PREEMPTED_EXIT_CODE,
    ConfigError,
    DataError,
    DivergedError,
    EpochalError,
    LeaseLostError,
    Preempted,
    WorkerDiedError,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from pathlib import Path
    from types import FrameType

    from epochal.distributed.world import World
    from epochal.engine.run.engine_run import EngineRun
    from epochal.engine.run.plan import PlanRow
    from epochal.engine.runner import Runner
    from epochal.errors import Place

LEASE_LOST = "lease_lost"
RANK_LOST = "rank_lost"
_STATUS_EXIT_CODES = {
    "interrupted": INTERRUPTED_EXIT_CODE,
    PREEMPTED: PREEMPTED_EXIT_CODE,
    DIVERGED: DivergedError.exit_code,
}

logger = logging.getLogger(__name__)


def execute(
    run: EngineRun,
    runner: Runner,
    *,
    raise_errors: bool = False,
    find_place: Callable[[str], Place | None] = lambda key: None,
) -> RunResult:
    """Execute a run and return its result; afterwards the run holds no parts.

    Events come in this order: ``setup``, ``assembled``, ``run_start``, those of the runner,
    ``error`` if something was raised, ``run_end``, ``teardown``. ``find_place`` returns where a key
    of the config was written.
    """
    result, error = execute_and_catch(run, runner, find_place=find_place)
    try:
        if error is not None and (raise_errors or not is_expected(error)):
            raise error
        return result
    finally:
        # The traceback refers to this frame: break the reference cycle.
        error = None


def execute_and_catch(
    run: EngineRun, runner: Runner, *, find_place: Callable[[str], Place | None] = lambda key: None
) -> tuple[RunResult, BaseException | None]:
    """Execute a run; returns its result, and the error that ended it if there was one."""
    value: object = None
    error: BaseException | None = None
    try:
        with _run_context(run) as preemption:
            try:
                value = _work(run, runner)
            except BaseException as caught:  # also Ctrl-C: hooks get the error event
                error = _find_cause(run, caught)
                explain_out_of_memory(run, caught)
                explain_dtype_mismatch(run.model, caught)
                explain_torch_error(caught)
                explain_wrong_call(caught)
                explain_shared_step(caught, run)
                explain_mixed_tensors(caught)
                if isinstance(caught, ConfigError):
                    caught.locate(find_place)
                error = tell_ranks(run.world, error)
            preemption.is_ending = True
            error = _end(run, error)
        return _build_result(run, value, error), error
    finally:
        run.release()
        # The traceback refers to this frame: break the reference cycle.
        error = None


def tell_ranks(world: World, error: BaseException) -> BaseException:
    """Tell the other processes of an error; returns the first error of all, if it is another."""
    first = world.explain(error)
    if first is error:
        look_at, world.look_at = world.look_at, None
        if look_at is not None:
            look_at(error)
        status, reason = _get_status_of_error(error)
        code = _exit_code(status, error)
        world.abort(report_error(error, world.rank, exit_code=code, reason=reason))
    return first


def result_of_error(
    error: BaseException,
    *,
    dir: Path | None = None,
    config: Mapping[str, Any] | None = None,
) -> RunResult:
    """The result of a run that failed before it could start."""
    status, reason = _get_status_of_error(error)
    return RunResult(
        status=status,
        reason=reason,
        **_describe_error(error),
        exit_code=_exit_code(status, error),
        dir=dir,
        config=config or {},
    )


def _describe_error(error: BaseException) -> dict[str, Any]:
    """The fields of a result about an error, maybe of another process."""
    if isinstance(error, RankFailedError):
        one = error.report
        return {
            "exception_type": one.exception_type,
            "message": one.message,
            "traceback": one.traceback,
            "rank": one.rank,
        }
    return {
        "exception_type": type(error).__name__,
        "message": describe_message(error),
        "traceback": "".join(traceback.format_exception(error)),
    }


def describe_plan(run: EngineRun, runner: Runner) -> list[PlanRow]:
    """The plan of a run, without executing it."""
    run.events.set_runner(runner.kind)
    with making_current(run), keeping_training_modes(run.model):
        run.bind()
        runner.prepare(run)
        return run.plan.describe()


def _work(run: EngineRun, runner: Runner) -> object:
    run.clock.start()
    keep_freed_memory()
    run.events.set_runner(runner.kind)
    run.fire("setup")
    run.part(TaskCalls).move_task()
    run.fire("assembled")
    run.bind()
    initialize_lazy_modules(run)
    runner.prepare(run)
    run.has_started = True
    run.fire("run_start")
    value = runner.run(run)
    if is_interrupted_or_preempted(run):
        save_if_requested(run)  # the signal came after the last step boundary
    run.writer.require_lease()  # raises if the folder was lost during the run
    return value


def _find_cause(run: EngineRun, error: BaseException) -> BaseException:
    """The error that ended a run; a WorkerDiedError or a signal if a loader worker died.

    A signal to the whole process group may end a worker before it can ignore the signal.
    """
    if isinstance(error, BdbQuit):  # the user left a debugger with q, or its input has ended
        return KeyboardInterrupt("stopped in the debugger").with_traceback(error.__traceback__)
    if not is_worker_death(error):
        return error
    ignore_worker_deaths()
    cause: BaseException = _explain_death(run, error)
    if is_interrupted_or_preempted(run):
        cause = Preempted() if run.stop_status == PREEMPTED else KeyboardInterrupt()
        try:
            if run.is_between_steps and run.world.is_single:
                save_if_requested(run)
        except Exception as failure:
            return failure
    elif isinstance(error, WorkerDiedError):
        return error
    cause.__cause__ = error
    return cause.with_traceback(error.__traceback__)


def _explain_death(run: EngineRun, error: BaseException) -> WorkerDiedError:
    """The death of a worker that was noticed outside of its loader, such as in a step."""
    loaders = named_loaders(run.task, run.split)
    loader = run.feed.loader if run.split == "train" else loaders.get(run.loader_name)
    if loader is None:
        return WorkerDiedError(f"{run.split}_loader")
    log = run.feed.find_read_log(loader)
    return explain_worker_death(error, loader, f"{run.split}_loader", log)


def _end(run: EngineRun, error: BaseException | None) -> BaseException | None:
    """Fire the last events to all listeners, even if some fail; returns the first error."""
    later = _deliver(run)
    if error is not None:
        later += run.events.fire_and_collect_errors("error", run, error)
    if run.has_started:
        later += run.events.fire_and_collect_errors("run_end", run)
    later += run.events.fire_and_collect_errors("teardown", run)
    for another in later:
        if error is None:
            error = another
        elif repr(another) != repr(error):  # a full disk raises the same error several times
            error.add_note(f"after that: {another!r}")
            logger.error("while the run was ending: %r", another)
    return error


def _deliver(run: EngineRun) -> list[BaseException]:
    """Deliver the pending means to their readers; this may fail after a device error."""
    try:
        run.meter.deliver()
    except Exception as error:
        return [error]
    return []


def _build_result(run: EngineRun, value: object, error: BaseException | None) -> RunResult:
    status, reason = _get_status_and_reason(run, error)
    return RunResult(
        status=status,
        reason=reason,
        **({"message": run.message} if error is None else _describe_error_with_rank(run, error)),
        exit_code=_exit_code(status, error),
        dir=run.dir,
        config=run.config,
        metrics=select_result_metrics(run.latest),
        best=None if run.monitor is None else run.monitor.best,
        steps=run.step,
        epochs=run.epoch,
        samples=run.samples,
        speed=read_speed(run),
        **read_spent(run).to_fields(),
        device_time=read_device_time(run),
        value=value,
    )


def _describe_error_with_rank(run: EngineRun, error: BaseException) -> dict[str, Any]:
    own = {} if run.world.is_single else {"rank": run.rank}
    return own | _describe_error(error)


def _get_status_and_reason(run: EngineRun, error: BaseException | None) -> tuple[str, str]:
    if error is not None:
        return _get_status_of_error(error)
    if run.stop_reason:
        return run.stop_status, run.stop_reason
    return "finished", "completed"


def _get_status_of_error(error: BaseException) -> tuple[str, str]:
    if isinstance(error, Preempted):
        return PREEMPTED, PREEMPTED
    if isinstance(error, KeyboardInterrupt):
        return "interrupted", "user_interrupt"
    return "failed", _reason(error)


def _reason(error: BaseException) -> str:
    if isinstance(error, RankFailedError):
        return error.report.reason
    if isinstance(error, RankLostError):
        return RANK_LOST
    if isinstance(error, ConfigError):
        return "config"
    if isinstance(error, LeaseLostError):
        return LEASE_LOST
    if is_disk_full(error):
        return "disk_full"
    return "oom" if is_out_of_memory(error) else "exception"


def _exit_code(status: str, error: BaseException | None) -> int:
    if status in _STATUS_EXIT_CODES:
        return _STATUS_EXIT_CODES[status]
    if error is None or isinstance(error, SystemExit):
        return 0 if error is None else _system_exit_code(error)
    if isinstance(error, RankFailedError):
        return error.report.exit_code
    if isinstance(error, EpochalError):
        return error.exit_code
    if is_out_of_memory(error):
        return OUT_OF_MEMORY_EXIT_CODE
    if is_worker_death(error):  # raised again while the run ended
        return DataError.exit_code
    return 74 if isinstance(error, WriteError) else 1


def _system_exit_code(error: SystemExit) -> int:
    """The exit code of the process, never 0: the run has failed.

    The operating system keeps the lowest byte.
    """
    if error.code is None or not isinstance(error.code, int):
        return 1
    return error.code & 0xFF or 1


def is_expected(error: BaseException) -> bool:
    """Whether the result may replace the error; SystemExit must propagate."""
    return isinstance(error, Exception | KeyboardInterrupt)


@contextmanager
def _run_context(run: EngineRun) -> Iterator[Preemption]:
    """Process settings and handlers of a run; restored at its end."""
    run.writer.set_on_loss(lambda loss: run.stop(LEASE_LOST, status="failed"))
    with (
        making_current(run),
        # A signal may raise inside no_grad() just before its exit restores the mode.
        torch.set_grad_enabled(torch.is_grad_enabled()),
        applying_engine_options(run.options.engine),
        recording_forward_lines(run.is_debug),
        seeded(derive_seed(run.seed, "run", *([run.data_rank] if run.data_rank else []))),
        _listening(run),
        recording_crashes(run),
        watching_for_hangs(
            run,
            position=run.position,
            on_stall=run.on_stall,
            is_supervised=run.is_supervised,
            describe_others=partial(describe_waiting_ranks, run),
        ),
        _stopping_on_interrupt(run),
        handling_preemption(run, run.request_end, partial(find_killed_rank, run)) as preemption,
        _handling_stop_requests(run, preemption),
        enforcing_grace_period(
            run,
            preemption,
            progress=lambda: (run.position(), preemption.is_ending, _save_progress(run)),
        ),
    ):
        yield preemption


@contextmanager
def _listening(run: EngineRun) -> Iterator[None]:
    """Listen to the other processes of the run in a block, if there are any."""
    if run.listener is None:
        yield
        return

    def record_stacks() -> None:
        folder = run.log_dir
        if folder is not None and (file := open_stacks(folder, run.rank)) is not None:
            with file:
                write_stacks(file)

    run.listener.start(ListenedPosition(run, record_stacks))
    try:
        yield
    finally:
        run.listener.stop()


@contextmanager
def _handling_stop_requests(run: EngineRun, preemption: Preemption) -> Iterator[None]:
    """End a run that is asked to stop by a file in its folder, maybe from another machine."""

    def end(reason: str) -> None:
        logger.warning("asked to stop (%s): saving after this step, then ending", reason)
        preemption.request_end()

    run.writer.set_on_stop_request(end)
    yield


def _save_progress(run: EngineRun) -> object:
    """A value that changes when a save starts or ends, and at each call during one."""
    saver = run.find_part(Saver)
    if saver is None:
        return None
    return object() if saver.is_writing else saver.saved_at


@contextmanager
def _stopping_on_interrupt(run: EngineRun) -> Iterator[None]:
    """Stop after the current step on the first Ctrl-C."""
    is_main = threading.current_thread() is threading.main_thread()
    before = signal.getsignal(signal.SIGINT)
    if not is_main or before in (None, signal.SIG_IGN):
        yield
        return

    owner, signal_log = os.getpid(), SignalSafeLog()

    def stop(number: int, frame: FrameType | None) -> None:
        if os.getpid() != owner:
            if get_worker_info() is None:  # loader workers ignore it; the run stops them
                handle_in_child(before, number, frame)
            return
        signal.signal(signal.SIGINT, signal.default_int_handler)
        run.request_end("interrupted")
        signal_log.warn("stopping after this step; Ctrl-C again stops at once")

    signal.signal(signal.SIGINT, stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
        signal_log.finish()
