"""SIGTERM and SIGUSR1: the run saves at the next step boundary and ends."""

from __future__ import annotations

import _thread
import logging
import os
import signal
import threading
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, final

from torch.utils.data import DataLoader

from epochal.errors import Preempted

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from types import FrameType

    from epochal.engine.interfaces.run import Run

    Handler = Callable[[int, FrameType | None], object] | int | None

PREEMPTED = "preempted"
PREEMPTED_EXIT_CODE = 75
PREEMPTION_SIGNALS = (
    (signal.SIGTERM, signal.SIGUSR1) if hasattr(signal, "SIGUSR1") else (signal.SIGTERM,)
)

_logger = logging.getLogger(__name__)


class EvaluationInterrupted(KeyboardInterrupt):
    """An evaluation was interrupted because the run ends; it is due again after a resume."""


EXTERNAL_STOPS = ("interrupted", PREEMPTED)
"""Ends that came from outside; those that training itself came to are part of its state."""


def is_interrupted_or_preempted(run: Run) -> bool:
    """Whether Ctrl-C or a signal ends the run: nothing more is done, and what is due stays due."""
    return run.stop_status in EXTERNAL_STOPS


@final
class SignalSafeLog:
    """Logs warnings from signal handlers, in threads: the interrupted code may hold log locks."""

    def __init__(self) -> None:
        self._pending: list[_thread.LockType] = []

    def warn(self, text: str, *values: object) -> None:
        """Log a warning as soon as possible."""
        is_logged = _thread.allocate_lock()
        is_logged.acquire()
        self._pending.append(is_logged)

        def log() -> None:
            try:
                _logger.warning(text, *values)
            finally:
                is_logged.release()

        # Not a Thread: starting one waits for a lock that the interrupted code may hold.
        _thread.start_new_thread(log, ())

    def finish(self) -> None:
        """Wait until all warnings are logged; must not be called in a signal handler."""
        while self._pending:
            self._pending.pop().acquire()


@final
class Preemption:
    """Handles the signals with which a scheduler preempts a run.

    The run saves and ends at its next step boundary; before its first step it ends at once.
    """

    def __init__(self, run: Run) -> None:
        self.is_ending = False
        """Whether only the last events of the run are left."""

        self.signal_log = SignalSafeLog()
        self._run = run
        self._num_terms = 0

    def handle_signal(self, number: int) -> None:
        """Request a save and the end of the run; the second SIGTERM ends it at once."""
        run, name = self._run, signal.Signals(number).name
        self._num_terms += number == signal.SIGTERM
        is_urgent = number == signal.SIGTERM and self._num_terms > 1
        has_steps = run.step > run.first_step
        is_over = self.is_ending or (bool(run.stop_reason) and run.stop_status != PREEMPTED)
        if not is_over:
            run.stop(PREEMPTED, status=PREEMPTED)
            if has_steps:
                run.request_save(PREEMPTED)
        if is_urgent or not (is_over or has_steps):
            raise Preempted(f"{name} ended the run at once")
        what = "the run is already ending" if is_over else "saving after this step, then ending"
        self.signal_log.warn("%s: %s; SIGTERM again ends it at once", name, what)


@contextmanager
def handling_preemption(run: Run) -> Iterator[Preemption]:
    """Handle SIGTERM and SIGUSR1 in a block, then restore the handlers.

    Does nothing outside the main thread; ignored signals stay ignored.
    """
    preemption = Preemption(run)
    if threading.current_thread() is not threading.main_thread():
        yield preemption
        return
    owner = os.getpid()
    found = {number: signal.getsignal(number) for number in PREEMPTION_SIGNALS}
    before: dict[int, Handler] = {
        number: handler
        for number, handler in found.items()
        if handler not in (None, signal.SIG_IGN)
    }

    def handle(number: int, frame: FrameType | None) -> None:
        if os.getpid() == owner:
            preemption.handle_signal(number)
        else:
            handle_in_child(before[number], number, frame)

    for number in before:
        signal.signal(number, handle)
    try:
        yield preemption
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        preemption.signal_log.finish()


def handle_in_child(before: Handler, number: int, frame: FrameType | None) -> None:
    """Handle a signal in a forked process with the handler from before the run."""
    if callable(before):
        before(number, frame)
    elif before == signal.SIG_DFL:
        signal.signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), number)


@final
class SignalTolerantWorker:
    """A ``worker_init_fn`` with which loader workers survive the first SIGTERM.

    Schedulers signal all processes of a job, but the run needs its workers until it has saved.
    The second SIGTERM, which torch sends at the end, ends the worker. ``init`` is the function that
    the loader had.
    """

    def __init__(self, init: Callable[[int], None] | None) -> None:
        self.init = init
        self._was_terminated = False

    def __call__(self, worker: int) -> None:
        """Set the signal handlers of a worker, then call the original function."""
        for number in PREEMPTION_SIGNALS:
            signal.signal(number, self._handle_signal)
        if self.init is not None:
            self.init(worker)

    def _handle_signal(self, number: int, frame: FrameType | None) -> None:
        if number == signal.SIGTERM and self._was_terminated:
            os._exit(0)
        self._was_terminated |= number == signal.SIGTERM


def protect_workers_from_signals(loader: object) -> None:
    """Let the workers of a loader survive the first signal to their process group."""
    if isinstance(loader, DataLoader) and loader.num_workers > 0:
        init = loader.worker_init_fn
        if not isinstance(init, SignalTolerantWorker):
            loader.worker_init_fn = SignalTolerantWorker(init)


def ignore_worker_deaths() -> None:
    """Keep torch's handler of SIGCHLD from raising: one dead worker makes it raise for each exit.

    It would interrupt the end of the run at any line. Loaders notice later deaths by polling.
    """
    is_main = threading.current_thread() is threading.main_thread()
    before = signal.getsignal(signal.SIGCHLD) if hasattr(signal, "SIGCHLD") else None
    if not is_main or not callable(before):
        return

    def handle(number: int, frame: FrameType | None) -> None:
        with suppress(RuntimeError):
            before(number, frame)

    signal.signal(signal.SIGCHLD, handle)
