"""Opens files of folders that others may have made: regular ones only, never through a link."""

from __future__ import annotations

import errno
import os
import stat
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable
    from io import BufferedReader
    from pathlib import Path

NO_FOLLOW: int = (
    getattr(os, "O_NOFOLLOW", 0)  # a link may lead out of the folder
    | getattr(os, "O_NONBLOCK", 0)  # a fifo would block
    | getattr(os, "O_NOCTTY", 0)
    | getattr(os, "O_CLOEXEC", 0)
    | getattr(os, "O_BINARY", 0)
)
"""Flags of ``os.open`` for a file that may be a link, a fifo or a device."""

MAX_BYTES = 1 << 30
"""Larger files are not read as a whole."""

_KINDS = {
    stat.S_IFDIR: "a folder",
    stat.S_IFIFO: "a named pipe",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
    stat.S_IFSOCK: "a socket",
    stat.S_IFLNK: "a link",
}


def open_regular(path: Path) -> BufferedReader:
    """A regular file, open for reading; raises OSError at once for anything else.

    A link in place of the file is refused. Links in place of the folders above it are followed:
    users keep runs on other disks.
    """
    return os.fdopen(open_descriptor(path, os.O_RDONLY), "rb")


def open_descriptor(
    path: Path, flags: int, open_file: Callable[[Path, int, int], int] = os.open
) -> int:
    """The descriptor of a regular file, see ``open_regular``, with any flags of ``os.open``."""
    try:
        descriptor = open_file(path, flags | NO_FOLLOW, 0o666)
    except OSError as error:
        _raise_if_special(path, error)
        raise
    try:
        mode = os.fstat(descriptor).st_mode
        if not stat.S_ISREG(mode):
            raise _not_regular(path, mode)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def require_regular(path: Path, *, follow: bool = False) -> None:
    """Raise OSError unless ``path`` is a regular file: for libraries that open files themselves.

    ``follow`` allows a link to one, for a file that the user named.
    """
    mode = (path.stat() if follow else path.lstat()).st_mode
    if not stat.S_ISREG(mode):
        raise _not_regular(path, mode)


def read_bytes(path: Path, *, max_bytes: int = MAX_BYTES) -> bytes:
    """The content of a regular file; raises OSError if it is larger."""
    with os.fdopen(open_descriptor(path, os.O_RDONLY), "rb", buffering=0) as file:
        if os.fstat(file.fileno()).st_size > max_bytes:
            raise OSError(errno.EFBIG, f"is larger than {max_bytes} bytes", str(path))
        return file.readall()


def read_text(path: Path) -> str:
    """The same as text; replaces what is not UTF-8."""
    return read_bytes(path).decode("utf-8", "replace")


def find_text(path: Path) -> str:
    """The same; empty if it cannot be read."""
    try:
        return read_text(path)
    except OSError:
        return ""


def _raise_if_special(path: Path, error: OSError) -> None:
    """Explain why a file could not be opened, if the reason is its kind."""
    try:
        mode = os.lstat(path).st_mode
    except OSError:
        return
    if not stat.S_ISREG(mode):
        raise _not_regular(path, mode) from error


def _not_regular(path: Path, mode: int) -> OSError:
    kind = stat.S_IFMT(mode)
    number = {stat.S_IFLNK: errno.ELOOP, stat.S_IFDIR: errno.EISDIR}.get(kind, errno.EINVAL)
    return OSError(number, f"is {_KINDS.get(kind, 'special')} and not a regular file", str(path))
