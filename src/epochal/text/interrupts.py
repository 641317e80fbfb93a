"""Ctrl-C and SIGTERM while a command starts up: they end it, and never inside an import."""

from __future__ import annotations

import os
import signal
from contextlib import contextmanager
from typing import TYPE_CHECKING, final

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from types import FrameType

# Imported before everything else: what this imports delays the moment from which we catch.


@final
class _InterruptState:
    """Whether somebody wants to stop, and whether now is the time."""

    is_deferred = False
    is_over = False
    pending: type[KeyboardInterrupt] | None = None


_state = _InterruptState()


@contextmanager
def catching_interrupts() -> Iterator[None]:
    """Let Ctrl-C raise ``KeyboardInterrupt``, except where ``deferring_interrupts`` holds it.

    Where SIGINT is ignored, as in the background of a script, it stays so.
    """
    before = signal.getsignal(signal.SIGINT)
    if before is not signal.default_int_handler or not _install(signal.SIGINT, _interrupt):
        yield
        return
    try:
        yield
    finally:
        _state.pending = None
        signal.signal(signal.SIGINT, before)


@contextmanager
def raising_on_preemption() -> Iterator[None]:
    """Let SIGTERM and SIGUSR1 raise ``Preempted``, held as Ctrl-C is: there is nothing to save.

    A run that has taken steps reacts by itself. Where others handle a signal, it stays so.
    """
    from epochal.errors import Preempted

    owner = os.getpid()

    def end(number: int, frame: FrameType | None) -> None:
        if os.getpid() != owner:  # forked off: as if we were not there
            signal.signal(number, signal.SIG_DFL)
            os.kill(os.getpid(), number)
        else:
            _raise_or_defer(Preempted)

    waiting, _state.is_over = _state.is_over, False
    if waiting and _state.pending is not None:  # it came when the run before this one was over
        _state.pending = None
        raise Preempted
    names = ("SIGTERM", "SIGUSR1")
    numbers = [getattr(signal, name) for name in names if hasattr(signal, name)]
    ours = [number for number in numbers if signal.getsignal(number) == signal.SIG_DFL]
    ours = [number for number in ours if _install(number, end)]
    try:
        yield
    finally:
        for number in ours:
            signal.signal(number, signal.SIG_DFL)
        if ours:
            _state.is_over, _state.pending = False, None


def leave_preemption_to_next_run() -> None:
    """From now on SIGTERM and SIGUSR1 are for the next run: this one has come to its end.

    A command whose work is done must not say that it has to go on.
    """
    _state.is_over = True


@contextmanager
def deferring_interrupts() -> Iterator[None]:
    """Raise the first Ctrl-C only after the block, the second at once.

    Libraries in C may abort when they are interrupted half imported, or forget it.
    """
    if _state.is_deferred:
        yield
        return
    _state.is_deferred = True
    try:
        yield
    finally:
        _state.is_deferred = False
    kind, _state.pending = _state.pending, None
    if kind is not None:
        _raise_or_defer(kind)


def _interrupt(number: int, frame: FrameType | None) -> None:
    _raise_or_defer(KeyboardInterrupt)


def _raise_or_defer(kind: type[KeyboardInterrupt]) -> None:
    is_late = _state.is_over and kind is not KeyboardInterrupt
    if is_late or (_state.is_deferred and _state.pending is None):
        _state.pending = kind
        return
    _state.pending = None
    raise kind


def _install(number: int, handler: Callable[[int, FrameType | None], None]) -> bool:
    try:
        signal.signal(number, handler)
    except ValueError:  # only the main thread may
        return False
    return True
