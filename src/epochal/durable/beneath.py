"""Opens files below a folder by untrusted names, without following links."""

from __future__ import annotations

import errno
import os
import stat
from typing import TYPE_CHECKING

from epochal.durable.reading import NO_FOLLOW

if TYPE_CHECKING:
    from io import BufferedReader
    from pathlib import Path

_FOLDER = os.O_RDONLY | getattr(os, "O_DIRECTORY", 0) | getattr(os, "O_CLOEXEC", 0)


def open_beneath(folder: Path, name: str) -> BufferedReader:
    """The regular file ``name`` below ``folder``, open for reading; OSError for anything else.

    Args:
        folder: The folder; links above it are followed, since users keep runs on other disks.
        name: Names joined by slashes. Hidden ones, ``..`` and links are refused.
    """
    names = name.split("/")
    if not all(map(_is_plain, names)):
        raise OSError(errno.ENOENT, "is not a name below the folder", name)
    handle = os.open(folder, _FOLDER)
    try:
        for one in names[:-1]:
            inner = os.open(one, _FOLDER | NO_FOLLOW, dir_fd=handle)
            os.close(handle)
            handle = inner
        file = os.open(names[-1], os.O_RDONLY | NO_FOLLOW, dir_fd=handle)
    finally:
        os.close(handle)
    if not stat.S_ISREG(os.fstat(file).st_mode):
        os.close(file)
        raise OSError(errno.EINVAL, "is not a regular file", name)
    return os.fdopen(file, "rb")


def read_beneath(folder: Path, name: str, *, max_bytes: int) -> bytes:
    """The content of a file as ``open_beneath`` opens it; OSError if it is larger."""
    with open_beneath(folder, name) as file:
        data = file.read(max_bytes + 1)
    if len(data) > max_bytes:
        raise OSError(errno.EFBIG, f"is larger than {max_bytes} bytes", name)
    return data


def _is_plain(name: str) -> bool:
    """Whether a name is one visible entry of a folder."""
    is_text = name.isprintable() and not name.startswith(".")
    return bool(name) and is_text and "\\" not in name
