"""Files that grow by whole records at their end."""

from __future__ import annotations

import errno
import os
from contextlib import suppress
from typing import TYPE_CHECKING, Self, final

from epochal.durable import system
from epochal.durable.encoding import encode_line
from epochal.durable.reading import open_descriptor, open_regular
from epochal.durable.system import WriteError

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path


@final
class Appender:
    """Appends records to a file that has no other writer.

    Args:
        path: The file; created when it is missing.
        sync: Whether each record must be on the disk before ``append`` returns. Without it a record
            survives the end of the process, but not a power failure before the next ``sync``.
        keep: How many bytes of an existing file are good; the rest is cut off.
    """

    def __init__(self, path: Path, *, sync: bool = False, keep: int | None = None) -> None:
        self.path = path
        self._is_synced = sync
        self._good_bytes: int | None = None  # where to truncate after a failure
        with system.write_errors(path):
            is_new = not path.exists()
            flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT
            self._descriptor = open_descriptor(path, flags, system.operations.open)
            try:
                if keep is not None and not is_new:
                    system.operations.truncate(self._descriptor, keep)
                if is_new:
                    system.sync_dir(path.parent)
            except BaseException:
                self.close()
                raise

    def append(self, data: bytes) -> None:
        """Add one record, whole, in one write; when it raises, nothing was added."""
        try:
            self._truncate()
            written = system.operations.write(self._descriptor, data)
            if written < len(data) or self._is_synced:
                self._complete(data, written)
        except OSError as error:
            with suppress(OSError):  # then the next append truncates first
                self._truncate()
            raise WriteError(self.path, error) from error

    def sync(self) -> None:
        """Sync everything that was appended."""
        with system.write_errors(self.path):
            system.operations.fsync(self._descriptor)

    def close(self) -> None:
        """Close the file; a second call does nothing."""
        if self._descriptor >= 0:
            descriptor, self._descriptor = self._descriptor, -1
            with system.write_errors(self.path):
                system.operations.close(descriptor)

    def _complete(self, data: bytes, written: int) -> None:
        self._good_bytes = os.fstat(self._descriptor).st_size - written
        system.write_all(self._descriptor, memoryview(data)[written:])
        if self._is_synced:
            system.operations.fsync(self._descriptor)
        self._good_bytes = None

    def _truncate(self) -> None:
        if self._good_bytes is not None:
            system.operations.truncate(self._descriptor, self._good_bytes)
            self._good_bytes = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def open_lines(path: Path, *, sync: bool = False) -> Appender:
    """An appender for ``encode_line`` records; a last line cut short by a crash is removed."""
    good_bytes = 0
    with system.write_errors(path, "read"), suppress(FileNotFoundError), open_regular(path) as file:
        position = file.seek(0, os.SEEK_END)
        while position and not good_bytes:
            start = max(0, position - 4096)
            file.seek(start)
            good_bytes = start + file.read(position - start).rfind(b"\n") + 1
            good_bytes = good_bytes if good_bytes > start else 0
            position = start
    return Appender(path, sync=sync, keep=good_bytes)


def append_line(path: Path, value: Mapping[str, object]) -> None:
    """Add one JSON line to a file, durably; opens and closes it."""
    with open_lines(path, sync=True) as lines:
        lines.append(encode_line(value))


def extend(path: Path, keep: int, data: bytes) -> None:
    """Truncate a file to ``keep`` bytes and append ``data``, without a sync.

    For data that can be rebuilt; readers must detect an incomplete file.
    """
    with system.write_errors(path):
        flags = os.O_WRONLY | os.O_CREAT
        descriptor = open_descriptor(path, flags, system.operations.open)
        try:
            if os.fstat(descriptor).st_nlink > 1:  # its other name may be outside of the folder
                raise OSError(errno.EMLINK, "has another name")
            system.operations.truncate(descriptor, keep)
            os.lseek(descriptor, 0, os.SEEK_END)
            system.write_all(descriptor, data)
        finally:
            system.operations.close(descriptor)
