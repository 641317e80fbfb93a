"""Signals and loader workers, which survive a scheduler's first signal, and end with their run."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
from contextlib import contextmanager
from functools import cache
from multiprocessing.util import Finalize
from typing import TYPE_CHECKING, Any, final

from torch.utils.data import DataLoader

from epochal.distributed.parent_process import end_with_parent
from epochal.engine.process.signals import PREEMPTION_SIGNALS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from types import FrameType

_FIRST = 100
_HELD_SIGNALS = (*PREEMPTION_SIGNALS, signal.SIGINT)


@final
class SignalTolerantWorker:
    """A ``worker_init_fn`` with which loader workers survive the first SIGTERM.

    Schedulers signal all processes of a job, but the run needs its workers until it has saved.
    ``init`` is the function that the loader had.
    """

    def __init__(self, init: Callable[[int], None] | None) -> None:
        self.init = init
        self.ends_with_thread = False
        """Whether the thread that starts workers lives as long as the process."""

        self._was_terminated = False

    def __call__(self, worker: int) -> None:
        """Set the signal handlers of a worker, then call the original function."""
        for number in PREEMPTION_SIGNALS:
            signal.signal(number, self._handle_signal)
        if self.ends_with_thread:
            end_with_parent()
        if hasattr(signal, "pthread_sigmask"):
            signal.pthread_sigmask(signal.SIG_UNBLOCK, _HELD_SIGNALS)
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


def iterate_loader(loader: Any) -> Iterator[Any]:  # noqa: ANN401 - of any kind
    """``iter(loader)``, whose new workers get signals only when they have their handlers.

    At its end the loader kills workers that do not stop by themselves: they ignore SIGTERM.
    """
    init = getattr(loader, "worker_init_fn", None)
    if not isinstance(init, SignalTolerantWorker):
        unprotected: Iterator[Any] = iter(loader)
        return unprotected
    _end_quietly_at_exit()
    init.ends_with_thread = threading.current_thread() is threading.main_thread()
    before = {process.pid for process in multiprocessing.active_children()}
    with _holding_signals():
        try:
            batches: Iterator[Any] = iter(loader)
        finally:  # also if a signal interrupts the start: the exit of Python ends the workers then
            for process in multiprocessing.active_children():
                if process.pid not in before:
                    _end_by_kill(process)
    return batches


def _end_by_kill(process: Any) -> None:  # noqa: ANN401 - a BaseProcess
    """Let ``terminate``, also that of the exit of Python, kill a process."""
    popen = getattr(process, "_popen", None)
    if popen is not None:
        popen.terminate = popen.kill


@cache
def _end_quietly_at_exit() -> None:
    """Let the exit of Python kill workers: torch's handler of SIGCHLD would raise an error."""
    if hasattr(signal, "SIGCHLD"):
        # Not atexit, which processes of multiprocessing skip; before their children are ended.
        Finalize(None, signal.signal, (signal.SIGCHLD, signal.SIG_DFL), exitpriority=_FIRST)


@contextmanager
def _holding_signals() -> Iterator[None]:
    """Hold back signals to this thread, and to processes that it starts."""
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, _HELD_SIGNALS)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
