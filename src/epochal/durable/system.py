"""The calls to the operating system that durable files are made of."""

from __future__ import annotations

import errno
import os
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, final

from typing_extensions import override

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
    """Every call that durable files need; replace ``operations`` to interfere with them."""

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
    """A name that nobody has, for what will be renamed to ``path``."""
    # Beside the target, never in the system's folder for temporary files: a rename
    # across file systems would be a copy, and a copy can be interrupted.
    return path.with_name(f".{path.name[:40]}.{os.getpid()}-{os.urandom(4).hex()}.tmp")


def create(path: Path, fill: Callable[[int], None]) -> None:
    """Make a new file, let ``fill`` write it, and bring it onto the disk."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_CLOEXEC", 0)
    descriptor = operations.open(path, flags, 0o666)
    try:
        fill(descriptor)
        operations.fsync(descriptor)
    finally:
        operations.close(descriptor)


def stage(path: Path, fill: Callable[[int], None]) -> None:
    """Let ``fill`` write the file ``path``: readers see the old one or the new one."""
    temporary = temporary_name(path)
    with explained(path):
        try:
            create(temporary, fill)
            operations.replace(temporary, path)
        except BaseException:  # also Ctrl-C must not leave half a file behind
            with suppress(OSError):
                operations.unlink(temporary)
            raise
        sync_dir(path.parent)


def write_all(descriptor: int, data: bytes | memoryview) -> None:
    """Write until nothing is left."""
    data = memoryview(data)
    while data:
        written = operations.write(descriptor, data)
        if written <= 0:
            raise OSError(errno.EIO, "nothing was written")
        data = data[written:]


def sync_dir(path: Path) -> None:
    """Bring the names in a folder onto the disk."""
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
def explained(path: Path, verb: str = "written") -> Iterator[None]:
    """Turns every OSError into a WriteError that names ``path``."""
    try:
        yield
    except WriteError:
        raise
    except OSError as error:
        raise WriteError(path, error, verb) from error
