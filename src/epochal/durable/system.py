"""The calls to the operating system that durable files are made of."""

from __future__ import annotations

import errno
import os
import sys
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, final

from typing_extensions import override

if sys.platform != "win32":
    import fcntl

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path


class WriteError(OSError):
    """A file could not be written; says which and why, and keeps the ``errno``."""

    def __init__(self, path: Path, error: OSError, verb: str = "written") -> None:
        reason = (error.strerror or str(error)).lower()
        super().__init__(error.errno, f"{path}: cannot be {verb}: {reason}")

    @override
    def __str__(self) -> str:
        return str(self.strerror)


@final
@dataclass(frozen=True, slots=True)
class Operations:
    """Every system call that durable files need; tests replace ``operations``."""

    open: Callable[[Path, int, int], int] = os.open
    write: Callable[[int, bytes | memoryview], int] = os.write
    fsync: Callable[[int], None] = os.fsync
    truncate: Callable[[int, int], None] = os.ftruncate
    close: Callable[[int], None] = os.close
    replace: Callable[[Path, Path], None] = os.replace
    unlink: Callable[[Path], None] = os.unlink
    mkdir: Callable[[Path], None] = os.mkdir
    rmdir: Callable[[Path], None] = os.rmdir
    symlink: Callable[[str, Path], None] = os.symlink
    link: Callable[[Path, Path], None] = os.link


operations = Operations()


def temporary_name(path: Path) -> Path:
    """A unique name beside ``path``, for a file that is renamed to it."""
    # Never in the system's temporary folder: a rename across file systems is not atomic.
    return path.with_name(f".{path.name[:40]}.{os.getpid()}-{os.urandom(4).hex()}.tmp")


def create(path: Path, fill: Callable[[int], None], mode: int = 0o666) -> None:
    """Make a new file, let ``fill`` write it, and sync it."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_CLOEXEC", 0)
    descriptor = operations.open(path, flags, mode)
    try:
        fill(descriptor)
        operations.fsync(descriptor)
    finally:
        operations.close(descriptor)


def stage(path: Path, fill: Callable[[int], None]) -> None:
    """Let ``fill`` write the file ``path``: readers see the old one or the new one."""
    with write_errors(path):
        with replacing(path) as temporary:
            create(temporary, fill)
        sync_dir(path.parent)


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """A temporary name to write to, which is renamed to ``path`` when the block ends."""
    temporary = temporary_name(path)
    with write_errors(path):
        try:
            yield temporary
            operations.replace(temporary, path)
        except BaseException:  # also Ctrl-C must not leave half a file behind
            with suppress(OSError):
                operations.unlink(temporary)
            raise


def write_all(descriptor: int, data: bytes | memoryview) -> None:
    """Write until nothing is left."""
    data = memoryview(data)
    while data:
        written = operations.write(descriptor, data)
        if written <= 0:
            raise OSError(errno.EIO, "nothing was written")
        data = data[written:]


def sync_dir(path: Path) -> None:
    """Sync the names in a folder."""
    if os.name == "nt":  # folders cannot be opened there
        return
    descriptor = operations.open(path, os.O_RDONLY | getattr(os, "O_DIRECTORY", 0), 0)
    try:
        operations.fsync(descriptor)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.ENOTSUP):  # some network file systems cannot
            raise
    finally:
        operations.close(descriptor)


@contextmanager
def locked(path: Path, flags: int = os.O_RDONLY, *, waits: bool = True) -> Iterator[bool | None]:
    """Lock a file or folder in a block: False if another process has it, None without locks.

    Windows and some network file systems have none. A lock ends with its process, at the latest.
    """
    if sys.platform == "win32":
        yield None
        return
    descriptor = os.open(path, flags, 0o666)
    try:
        yield lock(descriptor, waits=waits)
    finally:
        os.close(descriptor)


def lock(descriptor: int, *, waits: bool) -> bool | None:
    """Lock an open file: False if another process has it, None without locks."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | (0 if waits else fcntl.LOCK_NB))
    except BlockingIOError:
        return False
    except OSError:
        return None
    return True


@contextmanager
def write_errors(path: Path, verb: str = "written") -> Iterator[None]:
    """Turn every OSError into a WriteError that names ``path``."""
    try:
        yield
    except WriteError:
        raise
    except OSError as error:
        raise WriteError(path, error, verb) from error
