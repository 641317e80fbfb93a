"""A child process that gets SIGTERM when its parent dies, and signals only from it."""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
from typing import TYPE_CHECKING, final

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

_SET_PARENT_DEATH_SIGNAL = 1  # PR_SET_PDEATHSIG of prctl(2)


@final
class ChildProcess:
    """A running command in its own process group.

    If this process dies for any reason, the child gets SIGTERM and can still save.

    Args:
        command: The program and its arguments.
        environment: Variables added to those of this process.
    """

    def __init__(self, command: Sequence[str], environment: Mapping[str, str]) -> None:
        self._process = subprocess.Popen(
            list(command),
            env={**os.environ, **environment},
            stdin=subprocess.DEVNULL,
            process_group=0,
            preexec_fn=_bind_to_parent(),
        )

    def wait(self) -> int:
        """Wait for its end; gives the exit code, or minus the signal that killed it."""
        return self._process.wait()

    def send_signal(self, number: int) -> None:
        """Send a signal; does nothing if the process has ended."""
        self._process.send_signal(number)


def _bind_to_parent() -> Callable[[], None] | None:
    """What a child calls before it becomes the command; only Linux supports it."""
    if sys.platform != "linux":
        return None
    library, parent = ctypes.CDLL(None), os.getpid()  # loaded here: little is safe after a fork

    def bind() -> None:
        library.prctl(_SET_PARENT_DEATH_SIGNAL, signal.SIGTERM)
        if os.getppid() != parent:  # the parent died before the call
            os._exit(128 + signal.SIGTERM)

    return bind
