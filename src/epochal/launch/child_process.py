"""Child processes that get their signals from this process only, and end with it."""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
from typing import IO, TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

_SET_PARENT_DEATH_SIGNAL = 1  # PR_SET_PDEATHSIG of prctl(2)


def start_child(
    command: Sequence[str],
    environment: Mapping[str, str],
    *,
    cwd: Path | None = None,
    output: IO[bytes] | int | None = None,
    keep_open: Sequence[int] = (),
) -> subprocess.Popen[bytes]:
    """Start a command in its own process group, with variables added to those of this process.

    If the thread that calls this ends for any reason, the child gets SIGTERM and can still save;
    only Linux can do that.

    Args:
        command: The complete command.
        environment: Variables to add.
        cwd: Its folder; by default the current one.
        output: Where its output and its errors go; by default where those of this process go.
        keep_open: Descriptors that it inherits.
    """
    return subprocess.Popen(
        list(command),
        cwd=cwd,
        env={**os.environ, **environment},
        stdin=subprocess.DEVNULL,
        stdout=output,
        stderr=None if output is None else subprocess.STDOUT,
        pass_fds=tuple(keep_open),
        process_group=0,
        preexec_fn=_bind_to_parent(),
    )


def _bind_to_parent() -> Callable[[], None] | None:
    """What a child calls before it becomes the command; only Linux supports it."""
    if sys.platform != "linux":
        return None
    library, parent = ctypes.CDLL(None), os.getpid()  # loaded here: little is safe after a fork
    return lambda: bind_to_parent(parent, library)


def bind_to_parent(parent: int, library: ctypes.CDLL | None = None) -> None:
    """Let the system send SIGTERM to this process when its parent dies; only on Linux."""
    (library or ctypes.CDLL(None)).prctl(_SET_PARENT_DEATH_SIGNAL, signal.SIGTERM)
    if os.getppid() != parent:  # the parent died before the call
        os._exit(128 + signal.SIGTERM)
