"""Ctrl-C while a command starts up: it always ends the command, and never inside an import."""

from __future__ import annotations

import signal
import threading
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, final

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import FrameType


@final
@dataclass
class _Wish:
    """Whether somebody wants to stop, and whether now is the time."""

    is_deferred: bool = False
    is_pending: bool = False


_wish = _Wish()


@contextmanager
def catching_interrupts() -> Iterator[None]:
    """Let Ctrl-C raise ``KeyboardInterrupt``, except where ``deferring_interrupts`` holds it.

    Where SIGINT is ignored, as in the background of a script, it stays so.
    """
    is_main = threading.current_thread() is threading.main_thread()
    before = signal.getsignal(signal.SIGINT)
    if not is_main or before is not signal.default_int_handler:
        yield
        return
    signal.signal(signal.SIGINT, _interrupt)
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
