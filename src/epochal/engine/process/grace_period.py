"""Ends a run that hangs when it gets SIGTERM, within its grace period."""

from __future__ import annotations

import logging
import multiprocessing
import os
import signal
import socket
import threading
import time
from contextlib import contextmanager, suppress
from functools import cache, partial
from typing import TYPE_CHECKING, final

from epochal.engine.process.watchdog import open_stacks, write_stacks
from epochal.errors import PREEMPTED_EXIT_CODE, STALLED_EXIT_CODE

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from epochal.engine.interfaces.run import Run
    from epochal.engine.process.signals import Preemption
    from epochal.records import Writer

_WATCHED_SIGNALS = {getattr(signal, name, signal.SIGTERM) for name in ("SIGTERM", "SIGHUP")}
_INTERRUPT_SHARE = 0.8
"""The share of the period after which the main thread is interrupted; it can end in the rest."""

STALLED = "stalled"

_CHECKS_PER_PERIOD = 50
_REPORT_SECONDS = 2.0

logger = logging.getLogger(__name__)


@final
class GracePeriod:
    """Ends a process whose run makes no progress for ``seconds`` after a signal.

    ``progress`` returns what changes while the run still works towards its end.
    """

    def __init__(
        self,
        run: Run,
        preemption: Preemption,
        seconds: float,
        *,
        progress: Callable[[], object],
        end_process: Callable[[int], object] = os._exit,
    ) -> None:
        self._run, self._preemption = run, preemption
        self._seconds = seconds
        self._progress = progress
        self._end_process = end_process

    def enforce(self, is_over: threading.Event) -> None:
        """Watch until the run is over; interrupt the main thread, then end the process."""
        seen, since = self._progress(), time.monotonic()
        while not is_over.wait(self._seconds / _CHECKS_PER_PERIOD):
            position, now = self._progress(), time.monotonic()
            waited = now - since
            if position != seen:
                seen, since = position, now
            elif waited >= self._seconds:
                _end(self._write_status, PREEMPTED_EXIT_CODE, self._end_process)
                return
            elif waited >= _INTERRUPT_SHARE * self._seconds and not self._preemption.is_overdue:
                _call_with_timeout(_REPORT_SECONDS, partial(self._report, waited))
                self._preemption.is_overdue = True
                os.kill(os.getpid(), signal.SIGTERM)  # its handler raises in the main thread

    def _write_status(self) -> None:
        run = self._run
        run.writer.write_status("preempted", reason=STALLED, step=run.step, epoch=run.epoch)

    def _report(self, waited: float) -> None:
        run, where = self._run, "not recorded"
        with suppress(OSError):
            folder = run.log_dir
            if folder is not None and (file := open_stacks(folder, run.rank)) is not None:
                with file:
                    write_stacks(file)
                where = f"in {file.name}"
        logger.warning(
            "no progress for %.0f s after the signal: ending the run at step %d without a save; "
            "the stacks of all threads are %s; engine.grace_period sets another time",
            waited,
            run.step,
            where,
        )


def end_stalled_process(writer: Writer, message: str, step: int) -> None:
    """End this process, whose run makes no progress, so that its supervisor starts it again."""
    result = {"status": "failed", "reason": STALLED, "exit_code": STALLED_EXIT_CODE, "steps": step}
    error = {"exception_type": "Stalled", "message": message}

    def write_end() -> None:
        writer.write_result(result | error)
        writer.write_status("failed", reason=STALLED, step=step)

    _end(write_end, STALLED_EXIT_CODE)


def _end(
    write: Callable[[], object], code: int, end_process: Callable[[int], object] = os._exit
) -> None:
    """End this process and its workers from another thread, since the main one cannot."""
    _call_with_timeout(_REPORT_SECONDS, write)
    for process in multiprocessing.active_children():
        process.kill()
    end_process(code)


def _call_with_timeout(seconds: float, work: Callable[[], object]) -> None:
    """Call a function in a thread and wait at most ``seconds``: a disk or a lock may hang."""

    def run() -> None:
        with suppress(Exception):
            work()

    thread = threading.Thread(target=run, name="epochal-report", daemon=True)
    thread.start()
    thread.join(seconds)


@contextmanager
def enforcing_grace_period(
    run: Run, preemption: Preemption, *, progress: Callable[[], object]
) -> Iterator[None]:
    """End a run that hangs after SIGTERM or SIGHUP in a block.

    A thread learns of signals from a pipe, since Python calls a handler only when the main thread
    returns from C code. A program with an event loop has its own pipe, and no grace period.
    """
    period = run.options.engine.grace_period
    is_main = threading.current_thread() is threading.main_thread()
    if period.is_never or not is_main or not _is_wakeup_free():
        yield
        return
    ours, theirs = socket.socketpair()
    theirs.setblocking(False)
    is_over = threading.Event()
    grace = GracePeriod(run, preemption, float(period.amount), progress=progress)

    def watch() -> None:
        while numbers := ours.recv(64):
            if _WATCHED_SIGNALS & {*numbers}:
                grace.enforce(is_over)
                return

    thread = threading.Thread(target=watch, name="epochal-grace", daemon=True)
    thread.start()
    _wakeup_files().add(theirs.fileno())
    signal.set_wakeup_fd(theirs.fileno(), warn_on_full_buffer=False)
    try:
        yield
    finally:
        is_over.set()
        signal.set_wakeup_fd(-1)
        _wakeup_files().discard(theirs.fileno())
        theirs.shutdown(socket.SHUT_WR)  # closing is not enough: forked processes have copies
        theirs.close()
        thread.join()
        ours.close()


def _is_wakeup_free() -> bool:
    current = signal.set_wakeup_fd(-1)
    if current != -1:
        signal.set_wakeup_fd(current)
    return current == -1


@cache
def _wakeup_files() -> set[int]:
    """Our pipes; a forked process must not report its own signals there."""
    files: set[int] = set()

    def forget() -> None:
        current = signal.set_wakeup_fd(-1)
        if current not in (-1, *files):
            signal.set_wakeup_fd(current)
        files.clear()

    if hasattr(os, "register_at_fork"):
        os.register_at_fork(after_in_child=forget)
    return files
