"""SIGTERM and SIGUSR1: the run saves at the next step boundary and ends, with no step lost."""

from __future__ import annotations

import _thread
import logging
import os
import signal
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING, final

from torch.utils.data import DataLoader

from epochal.errors import Preempted

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from types import FrameType

    from epochal.engine.run import Run

    Handler = Callable[[int, FrameType | None], object] | int | None

PREEMPTED = "preempted"
PREEMPTED_EXIT_CODE = 75
PREEMPTION_SIGNALS = (
    (signal.SIGTERM, signal.SIGUSR1) if hasattr(signal, "SIGUSR1") else (signal.SIGTERM,)
)

_logger = logging.getLogger(__name__)


class EvaluationInterrupted(KeyboardInterrupt):
    """An evaluation was given up since the run is to end; it is due again when that goes on."""


def is_interrupted_or_preempted(run: Run) -> bool:
    """Whether somebody outside wants the run to end, so that nothing long may begin."""
    return run.stop_status in ("interrupted", PREEMPTED)


@final
class SignalSafeLog:
    """Warns from handlers of signals, in threads: what they interrupt may be writing just then."""

    def __init__(self) -> None:
        self._pending: list[_thread.LockType] = []

    def warn(self, text: str, *values: object) -> None:
        """Have a warning logged as soon as that is possible."""
        spoken = _thread.allocate_lock()
        spoken.acquire()
        self._pending.append(spoken)

        def speak() -> None:
            try:
                _logger.warning(text, *values)
            finally:
                spoken.release()

        # Not a Thread: to start one waits for a lock that the interrupted code may hold.
        _thread.start_new_thread(speak, ())

    def finish(self) -> None:
        """Wait until all was said; not from within a handler."""
        while self._pending:
            self._pending.pop().acquire()


@final
class Preemption:
    """What a run does about signals that ask for the machine back.

    Args:
        run: Ends at its next step boundary, after a save; before its first step at once.
        request_save: Has the run saved at its next step boundary.
    """

    def __init__(self, run: Run, request_save: Callable[[Run, str], object]) -> None:
        self.is_ending = False
        """Whether the run is over and only its last events are left."""

        self.voice = SignalSafeLog()
        self._run = run
        self._request_save = request_save
        self._num_terms = 0

    def take(self, number: int) -> None:
        """React to a signal; the second SIGTERM ends the run wherever it is.

        Raises:
            Preempted: There is nothing to wait for.
        """
        run, name = self._run, signal.Signals(number).name
        self._num_terms += number == signal.SIGTERM
        is_urgent = number == signal.SIGTERM and self._num_terms > 1
        has_steps = run.step > run.first_step
        is_over = self.is_ending or (bool(run.stop_reason) and run.stop_status != PREEMPTED)
        if not is_over:
            run.stop(PREEMPTED, status=PREEMPTED)
            if has_steps:
                self._request_save(run, PREEMPTED)
        if is_urgent or not (is_over or has_steps):
            raise Preempted(f"{name} ended the run at once")
        what = (
            "the run is about to end anyway" if is_over else "saving after this step, then ending"
        )
        self.voice.warn("%s: %s; SIGTERM again ends it at once", name, what)


@contextmanager
def handling_preemption(
    run: Run, request_save: Callable[[Run, str], object]
) -> Iterator[Preemption]:
    """React to SIGTERM and SIGUSR1 in a block; handlers are as before when it is over.

    Only the main thread can; a signal that is ignored stays so.
    """
    preemption = Preemption(run, request_save)
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

    def take(number: int, frame: FrameType | None) -> None:
        if os.getpid() == owner:
            preemption.take(number)
        else:
            handle_in_child(before[number], number, frame)

    for number in before:
        signal.signal(number, take)
    try:
        yield preemption
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        preemption.voice.finish()


def handle_in_child(before: Handler, number: int, frame: FrameType | None) -> None:
    """React in a process that was forked off as it would have before the run."""
    if callable(before):
        before(number, frame)
    elif before == signal.SIG_DFL:
        signal.signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), number)


@final
class SignalTolerantWorker:
    """Starts a loader's worker such that it leaves signals for its whole group to the run.

    Schedulers tell every process of a job to end, but a loader without workers would fail where
    the run can still save. Who wants to end a worker, as torch does in the end, insists.

    Args:
        then: The ``worker_init_fn`` that the loader had.
    """

    def __init__(self, then: Callable[[int], None] | None) -> None:
        self._then = then
        self._is_told = False

    def __call__(self, worker: int) -> None:
        """Start worker number so and so."""
        for number in PREEMPTION_SIGNALS:
            signal.signal(number, self._hear)
        if self._then is not None:
            self._then(worker)

    def _hear(self, number: int, frame: FrameType | None) -> None:
        if number == signal.SIGTERM and self._is_told:
            os._exit(0)
        self._is_told |= number == signal.SIGTERM


def protect_workers_from_signals(loader: object) -> None:
    """Have the workers of a loader outlive the first signal to their whole group."""
    if isinstance(loader, DataLoader) and loader.num_workers > 0:
        start = loader.worker_init_fn
        if not isinstance(start, SignalTolerantWorker):
            loader.worker_init_fn = SignalTolerantWorker(start)
