"""A process that ends with the one that started it, and hears Ctrl-C from it alone."""

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
class Child:
    """A running command, in a process group of its own.

    Should this process die, whatever the reason, the child is told to end and can still save.

    Args:
        command: The program and its words.
        environment: What is added to the variables of this process.
    """

    def __init__(self, command: Sequence[str], environment: Mapping[str, str]) -> None:
        self._process = subprocess.Popen(
            list(command),
            env={**os.environ, **environment},
            stdin=subprocess.DEVNULL,
            process_group=0,
            preexec_fn=_bound_to_parent(),
        )

    @property
    def pid(self) -> int:
        """Its number."""
        return self._process.pid

    def wait(self) -> int:
        """Wait for its end; gives the exit code, or minus the signal that ended it."""
        return self._process.wait()

    def tell(self, number: int) -> None:
        """Send it a signal; nothing if it has ended."""
        self._process.send_signal(number)


def _bound_to_parent() -> Callable[[], None] | None:
    """What a child does before it becomes the command; other systems than Linux cannot."""
    if sys.platform != "linux":
        return None
    library, parent = ctypes.CDLL(None), os.getpid()  # loaded here: little is safe after a fork

    def bind() -> None:
        library.prctl(_SET_PARENT_DEATH_SIGNAL, signal.SIGTERM)
        if os.getppid() != parent:  # it died before it could be asked to tell
            os._exit(128 + signal.SIGTERM)

    return bind
