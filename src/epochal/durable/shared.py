"""Files that never change: written once, and shared by several folders through hard links."""

from __future__ import annotations

import errno
import os
from contextlib import suppress
from typing import TYPE_CHECKING

from epochal.durable import system

if TYPE_CHECKING:
    from pathlib import Path

_NO_LINKS = (
    errno.EXDEV,
    errno.EPERM,
    errno.EACCES,
    errno.EMLINK,
    errno.ENOTSUP,
    errno.ENOSYS,
    errno.EINVAL,
)
_READ_ONLY = 0o444
_KEPT_TIME = 315_532_800
"""The time that such files have, the beginning of 1980: another one tells that somebody wrote."""


def keep_bytes(path: Path, data: bytes) -> None:
    """Put ``data`` at ``path`` as a file that nobody is to write, whole and synced.

    The folder is not synced: a file that is lost in a power cut can be told by its absence.
    """
    temporary = system.temporary_name(path)
    with system.explained(path):
        try:
            system.create(temporary, lambda file: system.write_all(file, data))
            temporary.chmod(_READ_ONLY)
            with suppress(OSError):
                os.utime(temporary, (_KEPT_TIME, _KEPT_TIME))
            system.operations.replace(temporary, path)
        except BaseException:
            with suppress(OSError):
                system.operations.unlink(temporary)
            raise


def is_kept(path: Path, size: int) -> bool:
    """Whether a file of ``size`` bytes is at ``path`` as ``keep_bytes`` left it.

    What a power cut has torn has another size; what somebody wrote into has another time.
    """
    try:
        status = path.stat()
    except OSError:
        return False
    return status.st_size == size and int(status.st_mtime) == _KEPT_TIME


def share(source: Path, target: Path) -> None:
    """Let ``target`` be the same file as ``source``; a copy where links cannot be.

    Raises:
        WriteError: There is no ``source``, or ``target`` is taken, or cannot be made.
    """
    with system.explained(target):
        try:
            system.operations.link(source, target)
        except OSError as error:
            if error.errno not in _NO_LINKS:
                raise
            keep_bytes(target, source.read_bytes())
