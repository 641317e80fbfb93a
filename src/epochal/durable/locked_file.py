"""Files that a process writes and keeps locked for as long as it lives."""

from __future__ import annotations

import os
import sys
from functools import cache
from typing import TYPE_CHECKING, final

from epochal.durable import system
from epochal.durable.encoding import encode_json

if sys.platform != "win32":
    import fcntl

if TYPE_CHECKING:
    from pathlib import Path


@final
class LockedFile:
    """``value`` as JSON at ``path``, locked until it is closed or the process ends in any way.

    Processes that this one forks or starts do not keep the lock.
    """

    def __init__(self, path: Path, value: object) -> None:
        self._path, self._data = path, encode_json(value, indent=1) + b"\n"
        self._descriptor = -1
        with system.write_errors(path):
            try:
                with system.replacing(path) as temporary:
                    self._create(temporary)
                system.sync_dir(path.parent)
            except BaseException:
                self.close()
                raise

    def _create(self, path: Path) -> None:
        flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | getattr(os, "O_CLOEXEC", 0)
        self._descriptor = system.operations.open(path, flags, 0o666)
        system.write_all(self._descriptor, self._data)
        system.operations.fsync(self._descriptor)
        if sys.platform == "win32":  # an open file cannot be renamed there
            self.close()
            return
        system.lock(self._descriptor, waits=False)
        _inherited().add(self._descriptor)

    def is_current(self) -> bool:
        """Whether the file is still there, with the content that this process wrote.

        Raises OSError if that cannot be known now.
        """
        try:
            return self._path.read_bytes() == self._data
        except (FileNotFoundError, NotADirectoryError):
            return False

    def close(self) -> None:
        """Unlock it; a second call does nothing."""
        if self._descriptor >= 0:
            if sys.platform != "win32":
                _inherited().discard(self._descriptor)
            system.operations.close(self._descriptor)
            self._descriptor = -1


def is_locked(path: Path) -> bool | None:
    """Whether a process has ``path`` as a LockedFile; None if there is not a file, or no locks.

    False is certain only for processes of this machine: some network file systems lock locally.
    """
    if sys.platform == "win32":
        return None
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        # Shared, so that two simultaneous readers do not mistake each other for the owner.
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return None
    finally:
        os.close(descriptor)
    return False


@cache
def _inherited() -> set[int]:
    """The locked descriptors of this process; a forked process closes its copies at once."""
    descriptors: set[int] = set()

    def close_copies() -> None:
        while descriptors:
            os.close(descriptors.pop())

    os.register_at_fork(after_in_child=close_copies)
    return descriptors
