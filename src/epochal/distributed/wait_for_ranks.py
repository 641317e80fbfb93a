"""Shows a message, and lets signals end the process, while it waits for other ranks to connect."""

from __future__ import annotations

import os
import signal
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING

from epochal.distributed.environment import LAUNCHED_VARIABLE, RankEnvironment
from epochal.text.error_output import print_error

if TYPE_CHECKING:
    from collections.abc import Iterator

_SECONDS = 10.0
"""How long a process waits before it says so."""

_SIGNALS = [
    getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name)
]  # Windows has no SIGHUP


@contextmanager
def waiting_for_ranks(place: RankEnvironment) -> Iterator[None]:
    """Let signals end this process in a block that connects it to the others.

    torch waits outside of Python, where no handler of Python is called, and there is nothing to
    save yet. After some seconds a message says what the process waits for. Our own launcher starts
    all processes and ends them itself.
    """
    if LAUNCHED_VARIABLE in os.environ or threading.current_thread() is not threading.main_thread():
        yield
        return
    previous = {number: signal.getsignal(number) for number in _SIGNALS}
    handlers = {number: one for number, one in previous.items() if callable(one)}
    message = threading.Timer(_SECONDS, print_error, [_describe(place)])
    message.daemon = True
    try:
        for number in handlers:
            signal.signal(number, signal.SIG_DFL)
        message.start()
        yield
    finally:
        message.cancel()
        for number, handler in handlers.items():
            signal.signal(number, handler)


def _describe(place: RankEnvironment) -> str:
    address = f"{os.environ.get('MASTER_ADDR')}:{os.environ.get('MASTER_PORT')}"
    return (
        f"RANK: rank {place.rank} waits for the other {place.world_size - 1} of "
        f"{place.world_size} processes at {address}\n"
        "  start them, or unset RANK and WORLD_SIZE to run a single process"
    )
