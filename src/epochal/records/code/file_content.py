"""Reads a file consistently while it may be written, and never through a link."""

from __future__ import annotations

import os
import stat
from dataclasses import dataclass
from typing import TYPE_CHECKING, final

from epochal.durable.reading import NO_FOLLOW

if TYPE_CHECKING:
    from pathlib import Path

_TRIES = 3
FRESH_NS = 2_000_000_000
"""Resolution of timestamps on some file systems: a younger file may change unnoticed."""

_CHUNK_BYTES = 1 << 20


@final
@dataclass(frozen=True, slots=True)
class FileStamp:
    """Size, times and inode, which change whenever the file does."""

    size: int
    modified: int
    """Nanoseconds, as ``changed``."""

    changed: int
    inode: int

    @classmethod
    def of(cls, status: os.stat_result) -> FileStamp:
        """The stamp from the result of ``stat``."""
        return cls(status.st_size, status.st_mtime_ns, status.st_ctime_ns, status.st_ino)


@final
@dataclass(frozen=True, slots=True)
class FileContent:
    """The content of a file, and its stamp."""

    data: bytes
    stamp: FileStamp
    is_stable: bool
    """Whether it stayed the same while it was read."""


def read_content(path: Path | str, *, max_bytes: int) -> FileContent | None:
    """The content of a file; None if it is larger or no regular file.

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
    descriptor = os.open(path, os.O_RDONLY | NO_FOLLOW)
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
    """Read at most ``size`` bytes: a file may grow as fast as it is read."""
    chunks = []
    while size > 0 and (chunk := os.read(descriptor, min(size, _CHUNK_BYTES))):
        chunks.append(chunk)
        size -= len(chunk)
    return b"".join(chunks)
