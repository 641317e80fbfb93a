"""Read-only files that several folders share through hard links."""

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
_MARKER_TIME = 315_532_800
"""The modification time of such files, the start of 1980: any other means it was changed."""


def write_readonly(path: Path, data: bytes) -> None:
    """Put ``data`` at ``path`` as a read-only file, whole and synced.

    The folder is not synced: a file that a power cut removes is simply missing.
    """
    with system.replacing(path) as temporary:
        system.create(temporary, lambda file: system.write_all(file, data))
        temporary.chmod(_READ_ONLY)
        with suppress(OSError):
            os.utime(temporary, (_MARKER_TIME, _MARKER_TIME))


def is_untouched(path: Path, size: int) -> bool:
    """Whether a file of ``size`` bytes is at ``path`` as ``write_readonly`` left it.

    After a power cut it may have another size, after a write it has another time.
    """
    try:
        status = path.stat()
    except OSError:
        return False
    return status.st_size == size and int(status.st_mtime) == _MARKER_TIME


def link_or_copy(source: Path, target: Path) -> None:
    """Make ``target`` a hard link to ``source``; a copy where links are not supported.

    Raises:
        WriteError: ``source`` is missing, or ``target`` exists or cannot be made.
    """
    with system.write_errors(target):
        try:
            system.operations.link(source, target)
        except OSError as error:
            if error.errno not in _NO_LINKS:
                raise
            write_readonly(target, source.read_bytes())
