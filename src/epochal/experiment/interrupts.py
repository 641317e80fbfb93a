"""Ctrl-C while a command starts up: it always ends the command, and never inside an import."""

from __future__ import annotations

import signal
from contextlib import contextmanager
from typing import TYPE_CHECKING, final

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import FrameType

# Imported before everything else: what this imports delays the moment from which we catch.


@final
class _Wish:
    """Whether somebody wants to stop, and whether now is the time."""

    is_deferred = False
    is_pending = False


_wish = _Wish()


@contextmanager
def catching_interrupts() -> Iterator[None]:
    """Let Ctrl-C raise ``KeyboardInterrupt``, except where ``deferring_interrupts`` holds it.

    Where SIGINT is ignored, as in the background of a script, it stays so.
    """
    before = signal.getsignal(signal.SIGINT)
    if before is not signal.default_int_handler or not _install():
        yield
        return
    try:
        yield
    finally:
        _wish.is_pending = False
        signal.signal(signal.SIGINT, before)


@contextmanager
def deferring_interrupts() -> Iterator[None]:
    """Raise the first Ctrl-C only after the block, the second at once.

    Libraries in C may abort when they are interrupted half imported, or forget it.
    """
    if _wish.is_deferred:
        yield
        return
    _wish.is_deferred = True
    try:
        yield
    finally:
        _wish.is_deferred = False
    if _wish.is_pending:
        _wish.is_pending = False
        raise KeyboardInterrupt


def _interrupt(number: int, frame: FrameType | None) -> None:
    if _wish.is_deferred and not _wish.is_pending:
        _wish.is_pending = True
        return
    _wish.is_pending = False
    raise KeyboardInterrupt


def _install() -> bool:
    try:
        signal.signal(signal.SIGINT, _interrupt)
    except ValueError:  # only the main thread may
        return False
    return True
