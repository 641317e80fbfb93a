"""Long-held lock files; the operating system frees them when their holders end."""

from __future__ import annotations

import os
import sys
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Any, final

from epochal.durable.encoding import decode_json, encode_json

if sys.platform != "win32":
    import fcntl

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

BEAT_SECONDS = 15.0
"""How often a holder calls ``beat``."""

STALE_SECONDS = 60.0
"""Seconds without a beat after which a lock is free, where the system has no locks."""

_MAX_BYTES = 1 << 16


@final
class HeldLock:
    """A lock that this process holds, and every child that inherits ``descriptor``.

    It is free when all of them have ended, or after ``release``. The file has facts about its
    holder for readers, and stays when the lock is free.
    """

    def __init__(self, path: Path, descriptor: int) -> None:
        self.path = path
        self.descriptor = descriptor
        """Open in this process; a child that should hold the lock too gets it by ``pass_fds``."""

    def write(self, facts: Mapping[str, object]) -> None:
        """Replace the facts about the holder."""
        data = encode_json(facts)
        os.ftruncate(self.descriptor, 0)
        os.pwrite(self.descriptor, data[:_MAX_BYTES], 0)

    def beat(self) -> None:
        """Renew the time of the file; needed only where the system has no locks."""
        with suppress(OSError):
            os.utime(self.path)

    def release(self) -> None:
        """Free the lock, also for children that inherited it; a second call does nothing."""
        if self.descriptor < 0:
            return
        descriptor, self.descriptor = self.descriptor, -1
        with suppress(OSError):
            os.ftruncate(descriptor, 0)
        if sys.platform != "win32":
            with suppress(OSError):
                fcntl.flock(descriptor, fcntl.LOCK_UN)
        os.close(descriptor)


def try_lock(
    path: Path,
    facts: Mapping[str, object],
    *,
    is_gone: Callable[[Mapping[str, Any]], bool] = lambda facts: False,
) -> HeldLock | None:
    """Lock a file, created if missing; None if another open file holds it.

    Args:
        path: The file.
        facts: What to write about the holder.
        is_gone: Whether the holder that facts describe has certainly ended; asked only where the
            system has no locks.
    """
    flags = os.O_RDWR | os.O_CREAT | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_NOFOLLOW", 0)
    descriptor = os.open(path, flags, 0o600)
    try:
        if not _acquire(descriptor, is_gone):
            os.close(descriptor)
            return None
        lock = HeldLock(path, descriptor)
        lock.write(facts)
        return lock
    except BaseException:
        with suppress(OSError):
            os.close(descriptor)
        raise


def read_holder(path: Path) -> dict[str, Any]:
    """The facts about the holder of a lock; empty if it is free or damaged."""
    try:
        value = decode_json(path.read_bytes()[:_MAX_BYTES])
    except (OSError, ValueError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}


def _acquire(descriptor: int, is_gone: Callable[[Mapping[str, Any]], bool]) -> bool:
    if sys.platform != "win32":
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        except OSError:  # a file system without locks
            pass
        else:
            return True
    return _is_abandoned(descriptor, is_gone)


def _is_abandoned(descriptor: int, is_gone: Callable[[Mapping[str, Any]], bool]) -> bool:
    """Whether the file names no holder, or one that has ended or no longer beats."""
    data = os.pread(descriptor, _MAX_BYTES, 0)
    try:
        facts = decode_json(data)
    except (ValueError, RecursionError):
        return True
    if not isinstance(facts, dict) or is_gone(facts):
        return True
    return time.time() - os.fstat(descriptor).st_mtime > STALE_SECONDS
