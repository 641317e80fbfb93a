"""Handles Ctrl-C and SIGTERM while a command starts; never interrupts an import."""

from __future__ import annotations

import os
import signal
from contextlib import contextmanager
from typing import TYPE_CHECKING, final

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from types import FrameType

# Imported before all other modules: every import here delays the installation of handlers.


@final
class _InterruptState:
    """Whether interrupts are deferred, and which one is pending."""

    is_deferred = False
    is_over = False
    pending: type[KeyboardInterrupt] | None = None


_state = _InterruptState()


@contextmanager
def catching_interrupts() -> Iterator[None]:
    """Raise ``KeyboardInterrupt`` on Ctrl-C, unless ``deferring_interrupts`` delays it.

    An ignored SIGINT, as in the background of a script, stays ignored.
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
    """Raise ``Preempted`` on SIGTERM, SIGUSR1 and SIGHUP, delayed like Ctrl-C.

    There is nothing to save. A run that has taken steps has its own handlers. Handlers of other
    code are kept.
    """
    from epochal.errors import Preempted

    owner = os.getpid()

    def end(number: int, frame: FrameType | None) -> None:
        if os.getpid() != owner:  # a fork: behave as without this handler
            signal.signal(number, signal.SIG_DFL)
            os.kill(os.getpid(), number)
        else:
            _raise_or_defer(Preempted)

    waiting, _state.is_over = _state.is_over, False
    if waiting and _state.pending is not None:  # it came after the previous run had ended
        _state.pending = None
        raise Preempted
    names = ("SIGTERM", "SIGUSR1", "SIGHUP")
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
    """Apply SIGTERM, SIGUSR1 and SIGHUP to the next run from now on, because this one has ended.

    A command whose work is done must not report that it has to be continued.
    """
    _state.is_over = True


@contextmanager
def deferring_interrupts() -> Iterator[None]:
    """Raise the first Ctrl-C only after the block, the second immediately.

    C libraries may abort, or swallow the interrupt, if it comes while they are imported.
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
    except ValueError:  # only possible in the main thread
        return False
    return True
