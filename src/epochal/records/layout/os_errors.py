"""Explains errors of the file system to users, with a hint."""

from __future__ import annotations

import errno
from contextlib import contextmanager
from typing import TYPE_CHECKING

from epochal.errors import EpochalError, RecordError

if TYPE_CHECKING:
    from collections.abc import Iterator

_ELSEWHERE = "choose another folder: record.log_dir=PATH"
_HINTS = {
    errno.ENOSPC: f"free some space there, or {_ELSEWHERE}",
    errno.EDQUOT: f"free some of your quota there, or {_ELSEWHERE}",
    errno.EACCES: f"ask for write permission, or {_ELSEWHERE}",
    errno.EPERM: f"ask for write permission, or {_ELSEWHERE}",
    errno.EROFS: f"the disk is mounted read-only; {_ELSEWHERE}",
    errno.EIO: f"the disk reports an error, see `dmesg`; {_ELSEWHERE}",
    errno.ENOENT: "the folder it belongs to is gone; start the run again",
    errno.EBADF: "it was closed already; open it again before writing",
}


def describe_os_error(error: OSError) -> str:
    """The reason of ``error`` in lower case, without its path."""
    return (error.strerror or str(error)).lower()


def explain_os_error(error: OSError, *, elsewhere: str = _ELSEWHERE) -> str:
    """The text of ``error``, and below it what to do; ``elsewhere`` is how to write another one."""
    hint = _HINTS.get(error.errno or 0, _ELSEWHERE)
    return f"{error}\n  {hint.replace(_ELSEWHERE, elsewhere)}"


@contextmanager
def raising_record_errors(kind: type[EpochalError] = RecordError) -> Iterator[None]:
    """Turn OSError into an error for users in a block or a decorated function."""
    try:
        yield
    except OSError as error:
        raise kind(explain_os_error(error)) from error
