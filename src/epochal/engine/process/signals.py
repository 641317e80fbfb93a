"""SIGTERM, SIGUSR1 and SIGHUP: the run saves at the next step boundary and ends."""

from __future__ import annotations

import _thread
import logging
import os
import signal
import threading
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, final

from epochal.errors import Preempted
from epochal.text.terminal import leave_closed_terminal

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from types import FrameType

    from epochal.engine.interfaces.run import Run

    Handler = Callable[[int, FrameType | None], object] | int | None

PREEMPTED = "preempted"
PREEMPTION_SIGNALS = tuple(
    getattr(signal, name) for name in ("SIGTERM", "SIGUSR1", "SIGHUP") if hasattr(signal, name)
)

logger = logging.getLogger(__name__)


class EvaluationInterrupted(KeyboardInterrupt):
    """An evaluation was interrupted because the run ends; it is due again after a resume."""


EXTERNAL_STOPS = ("interrupted", PREEMPTED)
"""Ends that were requested from outside; those that training reached are part of its state."""


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
        self.warn_later(lambda: text % values)

    def warn_later(self, describe: Callable[[], str]) -> None:
        """Log a warning whose text may take a moment to find."""
        is_logged = _thread.allocate_lock()
        is_logged.acquire()
        self._pending.append(is_logged)

        def log() -> None:
            try:
                logger.warning("%s", describe())
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

    def __init__(
        self,
        run: Run,
        end_later: Callable[[str], object] | None = None,
        find_killed: Callable[[], int | None] = lambda: None,
    ) -> None:
        self.is_ending = False
        """Whether only the last events of the run are left."""

        self.is_overdue = False
        """Whether the run hung for too long after the first signal."""

        self.signal_log = SignalSafeLog()
        self._run = run
        self._end_later = end_later or self._end_here
        self._find_killed = find_killed
        self._num_terms = 0

    @property
    def is_over(self) -> bool:
        """Whether the run ends for another reason already."""
        run = self._run
        return self.is_ending or (bool(run.stop_reason) and run.stop_status != PREEMPTED)

    def request_end(self) -> None:
        """Let the run save and end at its next step boundary; any thread may call it."""
        if not self.is_over:
            self._end_later(PREEMPTED)

    def _end_here(self, status: str) -> None:
        run = self._run
        run.stop(status, status=status)
        if run.step > run.first_step:
            run.request_save(status)

    def handle_signal(self, number: int) -> None:
        """Request a save and the end of the run; the second SIGTERM ends it at once."""
        run, name = self._run, signal.Signals(number).name
        leave_closed_terminal()  # SIGHUP means that it was closed
        self._num_terms += number == signal.SIGTERM
        is_urgent = number == signal.SIGTERM and (self._num_terms > 1 or self.is_overdue)
        has_steps, is_over = run.step > run.first_step, self.is_over
        self.request_end()
        if is_urgent or not (is_over or has_steps):
            why = "it made no progress" if self.is_overdue else f"{name} ended the run at once"
            raise Preempted(why)
        self.signal_log.warn_later(lambda: self._describe(name, is_over=is_over))

    def _describe(self, name: str, *, is_over: bool) -> str:
        """What a signal does; a launcher sends it, too, after another process has died."""
        what = "the run is already ending"
        if not is_over:
            if (rank := self._find_killed()) is not None:
                return f"rank {rank} has died: this process ends, too"
            what = "saving after this step, then ending"
        return f"{name}: {what}; SIGTERM again ends it at once"


@contextmanager
def handling_preemption(
    run: Run,
    end_later: Callable[[str], object] | None = None,
    find_killed: Callable[[], int | None] = lambda: None,
) -> Iterator[Preemption]:
    """Handle SIGTERM, SIGUSR1 and SIGHUP in a block, then restore the handlers.

    Does nothing outside the main thread; ignored signals stay ignored. ``end_later`` lets the run
    save and end with a status; ``find_killed`` finds a rank whose death may be the reason.
    """
    preemption = Preemption(run, end_later, find_killed)
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
