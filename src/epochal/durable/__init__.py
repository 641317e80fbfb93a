"""The only module that writes files which must survive a crash.

A file is staged beside its final name, synced, renamed, and its folder is synced: readers
see the old content or the new one, never a mixture. Appended records are whole or absent.
Every call to the operating system goes through ``operations``, so that each of them can be
made to fail, and what then remains on disk can be looked at. Failures are ``WriteError``.
"""

from __future__ import annotations

import errno
import os
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Self, final

from typing_extensions import override

from epochal.durable.blobs import DTYPE_BYTES, Blob, lay_out
from epochal.durable.text import decode_json, decode_line, encode_json, encode_line

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from pathlib import Path

__all__ = [
    "DTYPE_BYTES",
    "REMOVING",
    "STAGING",
    "Appender",
    "Blob",
    "Operations",
    "StagedDir",
    "WriteError",
    "append_line",
    "decode_json",
    "decode_line",
    "encode_json",
    "encode_line",
    "make_dir",
    "open_lines",
    "operations",
    "remove_stale",
    "remove_tree",
    "rename",
    "replace_link",
    "staged_dir",
    "write_bytes",
    "write_json",
    "write_safetensors",
    "write_text",
]

STAGING = ".staging-"
"""How the names of folders begin that are not complete."""

REMOVING = ".removing-"
"""How the names of folders begin that are on their way out."""

_CHUNK_BYTES = 1 << 24
_NO_LINKS = (errno.EPERM, errno.ENOTSUP, errno.ENOSYS, errno.EINVAL)


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
    """What this module asks of the operating system; replace ``operations`` to interfere."""

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


operations = Operations()


def write_bytes(path: Path, data: bytes) -> None:
    """Put ``data`` at ``path``, whole and durable, or raise and leave the old file alone."""
    _stage(path, lambda descriptor: _write_all(descriptor, memoryview(data)))


def write_text(path: Path, text: str) -> None:
    """Put ``text`` at ``path`` as UTF-8; what UTF-8 cannot say is written as an escape."""
    write_bytes(path, text.encode("utf-8", "backslashreplace"))


def write_json(path: Path, value: object) -> None:
    """Put ``value`` at ``path`` as JSON; see ``encode_json`` for what becomes of it."""
    write_bytes(path, encode_json(value, indent=1) + b"\n")


def make_dir(path: Path) -> None:
    """Make a folder and its missing parents; raise when it exists already."""
    missing = [path]
    while not missing[-1].parent.exists():
        missing.append(missing[-1].parent)
    with _explained(path, "made"):
        for parent in reversed(missing[1:]):
            with suppress(FileExistsError):  # another run made it in the meantime
                operations.mkdir(parent)
                _sync_dir(parent.parent)
        operations.mkdir(path)
        _sync_dir(path.parent)


def write_safetensors(
    path: Path, tensors: Mapping[str, Blob], metadata: Mapping[str, str] | None = None
) -> str:
    """Put tensors at ``path`` in the safetensors format; returns the file's SHA-256."""
    fill, digest = _filler(tensors, metadata or {})
    _stage(path, fill)
    return digest()


def _filler(
    tensors: Mapping[str, Blob], metadata: Mapping[str, str]
) -> tuple[Callable[[int], None], Callable[[], str]]:
    """What writes a safetensors file into a descriptor, and the SHA-256 of what it wrote."""
    import hashlib
    from concurrent.futures import ThreadPoolExecutor

    digest = hashlib.sha256()
    header, names = lay_out(tensors, metadata)

    def views() -> Iterator[memoryview]:
        yield memoryview(header)
        yield from (tensors[name].view(name) for name in names)

    def fill(descriptor: int) -> None:
        with ThreadPoolExecutor(max_workers=1) as beside:  # hashes while this thread writes
            for view in views():
                for start in range(0, len(view), _CHUNK_BYTES):
                    chunk = view[start : start + _CHUNK_BYTES]
                    hashed = beside.submit(digest.update, chunk)
                    _write_all(descriptor, chunk)
                    hashed.result()

    return fill, digest.hexdigest


@final
class StagedDir:
    """A folder that is being filled beside its final place; each of its files is synced."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def write_bytes(self, name: str, data: bytes) -> str:
        """Put ``data`` into the file ``name``; returns its SHA-256."""
        import hashlib

        _create(self.path / name, lambda descriptor: _write_all(descriptor, memoryview(data)))
        return hashlib.sha256(data).hexdigest()

    def write_safetensors(self, name: str, tensors: Mapping[str, Blob]) -> str:
        """Put tensors into the file ``name``; returns its SHA-256."""
        fill, digest = _filler(tensors, {"format": "pt"})
        _create(self.path / name, fill)
        return digest()


@contextmanager
def staged_dir(target: Path, owner: str) -> Iterator[StagedDir]:
    """A folder to fill, which gets the name ``target`` when the block ends, and not before.

    Whatever goes wrong, ``target`` is there whole and synced, or not at all. ``target`` must
    be free; ``owner`` tells ``remove_stale`` who was at work.
    """
    staging = target.with_name(f"{STAGING}{target.name}-{owner}")
    with _explained(target):
        if target.exists():
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST))
        operations.mkdir(staging)
        try:
            yield StagedDir(staging)
            _sync_dir(staging)
            operations.replace(staging, target)
        except BaseException:
            with suppress(OSError):
                _remove(staging)
            raise
        _sync_dir(target.parent)


def replace_link(path: Path, name: str) -> None:
    """Let ``path`` point to its neighbour ``name``, at once; a text file where links cannot be."""
    temporary = _temporary(path)
    with _explained(path):
        try:
            operations.symlink(name, temporary)
        except OSError as error:
            if error.errno not in _NO_LINKS:
                raise
            _stage(path, lambda descriptor: _write_all(descriptor, memoryview(name.encode())))
            return
        try:
            operations.replace(temporary, path)
        except BaseException:
            with suppress(OSError):
                operations.unlink(temporary)
            raise
        _sync_dir(path.parent)


def rename(path: Path, target: Path) -> None:
    """Give a file or folder another name beside the old one, durably."""
    with _explained(path, "renamed"):
        operations.replace(path, target)
        _sync_dir(path.parent)


def remove_tree(path: Path, owner: str) -> None:
    """Remove a folder such that nobody sees half of it: it is renamed first."""
    with _explained(path, "removed"):
        gone = path.with_name(f"{REMOVING}{path.name}-{owner}")
        operations.replace(path, gone)
        _sync_dir(path.parent)
        _remove(gone)


def remove_stale(folder: Path, is_stale: Callable[[str], bool]) -> list[str]:
    """Remove what ``staged_dir`` and others left in ``folder`` when they were killed.

    ``is_stale`` is asked about each owner. Returns the names that were removed.
    """
    removed = []
    with _explained(folder, "cleaned"), suppress(FileNotFoundError):
        for path in sorted(folder.iterdir()):
            owner = _owner(path.name)
            if owner and is_stale(owner):
                _remove(path)
                removed.append(path.name)
    return removed


def _owner(name: str) -> str:
    if name.startswith((STAGING, REMOVING)):
        return name.rpartition("-")[2]
    if name.startswith(".") and name.endswith(".tmp"):
        return name.removesuffix(".tmp").rpartition(".")[2].partition("-")[0]
    return ""


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        for child in sorted(path.iterdir()):
            _remove(child)
        operations.rmdir(path)
    else:
        operations.unlink(path)


@final
class Appender:
    """Adds records to the end of one file; nobody else may write to it meanwhile.

    Args:
        path: The file; made when it is missing.
        sync: Whether each record must be on the disk before ``append`` returns. Without it
            a record outlives the process, but not a power cut before the next ``sync``.
        keep: How many bytes of an existing file are good; the rest is cut off.
    """

    def __init__(self, path: Path, *, sync: bool = False, keep: int | None = None) -> None:
        self.path = path
        self._is_synced = sync
        self._good_bytes: int | None = None  # where to cut before writing on, after a failure
        with _explained(path):
            is_new = not path.exists()
            flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | getattr(os, "O_CLOEXEC", 0)
            self._descriptor = operations.open(path, flags, 0o666)
            try:
                if keep is not None and not is_new:
                    operations.truncate(self._descriptor, keep)
                if is_new:
                    _sync_dir(path.parent)
            except BaseException:
                self.close()
                raise

    def append(self, data: bytes) -> None:
        """Add one record, whole, in one write; when it raises, nothing was added."""
        try:
            self._mend()
            written = operations.write(self._descriptor, data)
            if written < len(data) or self._is_synced:
                self._complete(data, written)
        except OSError as error:
            with suppress(OSError):  # then the next append mends, before it writes
                self._mend()
            raise WriteError(self.path, error) from error

    def sync(self) -> None:
        """Bring everything that was appended onto the disk."""
        with _explained(self.path):
            operations.fsync(self._descriptor)

    def close(self) -> None:
        """Let go of the file; a second call does nothing."""
        if self._descriptor >= 0:
            descriptor, self._descriptor = self._descriptor, -1
            with _explained(self.path):
                operations.close(descriptor)

    def _complete(self, data: bytes, written: int) -> None:
        self._good_bytes = os.fstat(self._descriptor).st_size - written
        _write_all(self._descriptor, memoryview(data)[written:])
        if self._is_synced:
            operations.fsync(self._descriptor)
        self._good_bytes = None

    def _mend(self) -> None:
        if self._good_bytes is not None:
            operations.truncate(self._descriptor, self._good_bytes)
            self._good_bytes = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def open_lines(path: Path, *, sync: bool = False) -> Appender:
    """An appender for ``encode_line`` records; a last line cut short by a crash is removed."""
    good_bytes = 0
    with _explained(path, "read"), suppress(FileNotFoundError), path.open("rb") as file:
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


def _temporary(path: Path) -> Path:
    # Beside the target, never in the system's folder for temporary files: a rename
    # across file systems would be a copy, and a copy can be interrupted.
    return path.with_name(f".{path.name[:40]}.{os.getpid()}-{os.urandom(4).hex()}.tmp")


def _create(path: Path, fill: Callable[[int], None]) -> None:
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_CLOEXEC", 0)
    descriptor = operations.open(path, flags, 0o666)
    try:
        fill(descriptor)
        operations.fsync(descriptor)
    finally:
        operations.close(descriptor)


def _stage(path: Path, fill: Callable[[int], None]) -> None:
    temporary = _temporary(path)
    with _explained(path):
        try:
            _create(temporary, fill)
            operations.replace(temporary, path)
        except BaseException:  # also Ctrl-C must not leave half a file behind
            with suppress(OSError):
                operations.unlink(temporary)
            raise
        _sync_dir(path.parent)


def _write_all(descriptor: int, data: memoryview) -> None:
    while data:
        written = operations.write(descriptor, data)
        if written <= 0:
            raise OSError(errno.EIO, "nothing was written")
        data = data[written:]


def _sync_dir(path: Path) -> None:
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
def _explained(path: Path, verb: str = "written") -> Iterator[None]:
    try:
        yield
    except WriteError:
        raise
    except OSError as error:
        raise WriteError(path, error, verb) from error
