"""The content of one file as it is, also while somebody writes it; never through a link."""

from __future__ import annotations

import os
import stat
from dataclasses import dataclass
from typing import TYPE_CHECKING, final

if TYPE_CHECKING:
    from pathlib import Path

_FLAGS = (
    os.O_RDONLY
    | getattr(os, "O_NOFOLLOW", 0)  # it may have become a link since it was found
    | getattr(os, "O_NONBLOCK", 0)  # or a fifo, which would wait for a writer
    | getattr(os, "O_CLOEXEC", 0)
    | getattr(os, "O_BINARY", 0)
)
_TRIES = 3
FRESH_NS = 2_000_000_000
"""Some file systems count time in such steps: a younger file may change unnoticed."""

_CHUNK_BYTES = 1 << 20


@final
@dataclass(frozen=True, slots=True)
class FileStamp:
    """What changes whenever a file does, and costs nothing to look at."""

    size: int
    modified: int
    """Nanoseconds, as ``changed``."""

    changed: int
    inode: int

    @classmethod
    def of(cls, status: os.stat_result) -> FileStamp:
        """The stamp of a file of which ``stat`` was asked."""
        return cls(status.st_size, status.st_mtime_ns, status.st_ctime_ns, status.st_ino)


@final
@dataclass(frozen=True, slots=True)
class FileContent:
    """What was read of a file."""

    data: bytes
    stamp: FileStamp
    is_stable: bool
    """Whether it stayed the same while it was read."""


def read_content(path: Path | str, *, max_bytes: int) -> FileContent | None:
    """What stands in a file; None if it is larger, or no plain file.

    Raises:
        OSError: It cannot be read, or is a link.
    """
    content = None
    for _ in range(_TRIES):
        content = _read_once(path, max_bytes)
        if content is None or content.is_stable:
            break
    return content


def _read_once(path: Path | str, max_bytes: int) -> FileContent | None:
    descriptor = os.open(path, _FLAGS)
    try:
        before = os.fstat(descriptor)
        if not stat.S_ISREG(before.st_mode) or before.st_size > max_bytes:
            return None
        data = _read_all(descriptor, before.st_size)
        after = FileStamp.of(os.fstat(descriptor))
    finally:
        os.close(descriptor)
    is_stable = after == FileStamp.of(before) and len(data) == after.size
    return FileContent(data, after, is_stable)


def _read_all(descriptor: int, size: int) -> bytes:
    """What was there when it was opened: a file may grow as fast as it is read."""
    chunks = []
    while size > 0 and (chunk := os.read(descriptor, min(size, _CHUNK_BYTES))):
        chunks.append(chunk)
        size -= len(chunk)
    return b"".join(chunks)
