"""One run from its first event to its result, whatever happens in between."""

from __future__ import annotations

import logging
import os
import signal
import threading
import traceback
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import torch
from torch.utils.data import get_worker_info

from epochal.durable import WriteError
from epochal.engine.current import making_current
from epochal.engine.device.device_memory import keep_freed_memory
from epochal.engine.device.out_of_memory import OUT_OF_MEMORY_EXIT_CODE as OUT_OF_MEMORY
from epochal.engine.device.out_of_memory import (
    explain_out_of_memory,
    is_disk_full,
    is_out_of_memory,
)
from epochal.engine.device.seeding import applying_engine_options, derive_seed, seeded
from epochal.engine.evaluate import initialize_lazy_modules, keeping_training_modes
from epochal.engine.measure.phase_timer import read_device_time, read_spent
from epochal.engine.process.signals import (
    PREEMPTED,
    PREEMPTED_EXIT_CODE,
    Preemption,
    SignalSafeLog,
    handle_in_child,
    handling_preemption,
)
from epochal.engine.process.watchdog import watching_for_hangs
from epochal.engine.result import RunResult
from epochal.engine.state.saver import request_save, save_if_requested
from epochal.errors import ConfigError, EpochalError, Preempted

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from pathlib import Path
    from types import FrameType

    from epochal.engine.events.step_plan import PlanRow
    from epochal.engine.run import Run
    from epochal.engine.runner import Runner
    from epochal.errors import Place

_CODES = {"interrupted": 130, PREEMPTED: PREEMPTED_EXIT_CODE}

_logger = logging.getLogger(__name__)


def execute(
    run: Run,
    runner: Runner,
    *,
    raise_errors: bool = False,
    find_place: Callable[[str], Place | None] = lambda key: None,
) -> RunResult:
    """Carry out a run and say how it ended; afterwards it holds no part any more.

    Events come in this order: ``setup``, ``assembled``, ``run_start``, those of the runner,
    ``error`` if something was raised, ``run_end``, ``teardown``.

    Args:
        run: Made of parts that nothing else uses at the same time.
        runner: What to do with them.
        raise_errors: Raise what ended the run instead of describing it in the result.
        find_place: Where a key of the config was written.
    """
    value: object = None
    error: BaseException | None = None
    try:
        with _run_context(run) as preemption:
            try:
                value = _work(run, runner)
            except BaseException as caught:  # also Ctrl-C: the hooks must hear how it ended
                error = caught
                explain_out_of_memory(run, caught)
                if isinstance(caught, ConfigError):
                    caught.locate(find_place)
            preemption.is_ending = True
            error = _end(run, error)
        result = _build_result(run, value, error)
        if error is not None and (raise_errors or not _is_expected(error)):
            raise error
        return result
    finally:
        run.release()
        # The traceback knows this frame: without this the two would keep each other alive.
        error = None


def result_of_error(
    error: BaseException,
    *,
    dir: Path | None = None,
    config: Mapping[str, Any] | None = None,
) -> RunResult:
    """The result of a run that ended with an error before it could start."""
    status, reason = _get_status_of_error(error)
    return RunResult(
        status=status,
        reason=reason,
        exception_type=type(error).__name__,
        message=str(error),
        traceback="".join(traceback.format_exception(error)),
        exit_code=_exit_code(status, error),
        dir=dir,
        config=config or {},
    )


def describe_plan(run: Run, runner: Runner) -> list[PlanRow]:
    """The plan of a run that is not carried out."""
    with making_current(run), keeping_training_modes(run.model):
        run.bind()
        runner.prepare(run)
        return run.plan.describe()


def _work(run: Run, runner: Runner) -> object:
    run.clock.start()
    keep_freed_memory()
    run.fire("setup")
    run.calls.move_task()
    run.fire("assembled")
    run.bind()
    initialize_lazy_modules(run)
    runner.prepare(run)
    run.has_started = True
    run.fire("run_start")
    value = runner.run(run)
    if run.stop_status == PREEMPTED:
        save_if_requested(run)  # the signal came when the last boundary was over
    return value


def _end(run: Run, error: BaseException | None) -> BaseException | None:
    """Fire the last events, each to everyone; the first error of all comes back."""
    later = _deliver(run)
    if error is not None:
        later += run.events.fire_and_collect_errors("error", run, error)
    if run.has_started:
        later += run.events.fire_and_collect_errors("run_end", run)
    later += run.events.fire_and_collect_errors("teardown", run)
    for another in later:
        if error is None:
            error = another
        else:
            error.add_note(f"after that: {another!r}")
            _logger.error("while the run was ending: %r", another)
    return error


def _deliver(run: Run) -> list[BaseException]:
    """Give readers what is on its way; after a failure of the device that may fail too."""
    try:
        run.meter.deliver()
    except Exception as error:
        return [error]
    return []


def _build_result(run: Run, value: object, error: BaseException | None) -> RunResult:
    status, reason = _get_status_and_reason(run, error)
    return RunResult(
        status=status,
        reason=reason,
        exception_type=None if error is None else type(error).__name__,
        message="" if error is None else str(error),
        traceback="" if error is None else "".join(traceback.format_exception(error)),
        exit_code=_exit_code(status, error),
        dir=run.dir,
        config=run.config,
        metrics=dict(run.latest),
        best=None if run.monitor is None else run.monitor.best,
        steps=run.step,
        epochs=run.epoch,
        samples=run.samples,
        **read_spent(run).to_fields(),
        device_time=read_device_time(run),
        value=value,
    )


def _get_status_and_reason(run: Run, error: BaseException | None) -> tuple[str, str]:
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
    if isinstance(error, ConfigError):
        return "config"
    if is_disk_full(error):
        return "disk_full"
    return "oom" if is_out_of_memory(error) else "exception"


def _exit_code(status: str, error: BaseException | None) -> int:
    if status in _CODES:
        return _CODES[status]
    if error is None or isinstance(error, SystemExit):
        return 0 if error is None else _code_of_exit(error)
    if isinstance(error, EpochalError):
        return error.exit_code
    if is_out_of_memory(error):
        return OUT_OF_MEMORY
    return 74 if isinstance(error, WriteError) else 1


def _code_of_exit(error: SystemExit) -> int:
    """What the process exits with: the system keeps the lowest byte of a number."""
    if error.code is None:
        return 0
    return error.code & 0xFF if isinstance(error.code, int) else 1


def _is_expected(error: BaseException) -> bool:
    """Whether a result can stand for it; a request to leave Python must go on."""
    return isinstance(error, Exception | KeyboardInterrupt)


@contextmanager
def _run_context(run: Run) -> Iterator[Preemption]:
    """What holds while the run goes on, and is as before when it is over."""
    with (
        making_current(run),
        # A signal may end a run between a block without gradients and what would end that block.
        torch.set_grad_enabled(torch.is_grad_enabled()),
        applying_engine_options(run.options.engine),
        seeded(derive_seed(run.seed, "run")),
        watching_for_hangs(run),
        _stopping_on_interrupt(run),
        handling_preemption(run, request_save) as preemption,
    ):
        yield preemption


@contextmanager
def _stopping_on_interrupt(run: Run) -> Iterator[None]:
    """Take the first Ctrl-C as a wish to stop after the current step."""
    is_main = threading.current_thread() is threading.main_thread()
    before = signal.getsignal(signal.SIGINT)
    if not is_main or before in (None, signal.SIG_IGN):
        yield
        return

    owner, voice = os.getpid(), SignalSafeLog()

    def stop(number: int, frame: FrameType | None) -> None:
        if os.getpid() != owner:
            if get_worker_info() is None:  # a loader's worker leaves it to the run
                handle_in_child(before, number, frame)
            return
        signal.signal(signal.SIGINT, signal.default_int_handler)
        run.stop("user_interrupt", status="interrupted")
        voice.warn("stopping after this step; Ctrl-C again stops at once")

    signal.signal(signal.SIGINT, stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
        voice.finish()
