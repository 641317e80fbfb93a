"""Ends a process when the process that started it has died."""

from __future__ import annotations

import ctypes
import multiprocessing
import os
import signal
import sys
from contextlib import suppress

_SET_PARENT_DEATH_SIGNAL = 1  # PR_SET_PDEATHSIG of prctl(2)


def end_with_parent() -> None:
    """Let the kernel kill this process when its parent has died; only Linux supports it."""
    parent = multiprocessing.parent_process()
    if sys.platform != "linux" or parent is None:
        return
    with suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(_SET_PARENT_DEATH_SIGNAL, signal.SIGKILL)
    if os.getppid() != parent.pid:  # it died before the call
        os._exit(0)
