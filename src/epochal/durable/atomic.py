"""Files, folders and links that appear whole or not at all, and the layout of safetensors files."""

from __future__ import annotations

import errno
import json
import math
import os
from collections import deque
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from itertools import chain
from typing import IO, TYPE_CHECKING, Any, Self, final

from epochal.durable import system
from epochal.durable.encoding import decode_json, encode_json
from epochal.durable.reading import read_bytes

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from concurrent.futures import Future
    from pathlib import Path

DTYPE_BYTES: Mapping[str, int] = {
    "BOOL": 1, "U8": 1, "I8": 1, "F8_E4M3": 1, "F8_E5M2": 1,
    "U16": 2, "I16": 2, "F16": 2, "BF16": 2,
    "U32": 4, "I32": 4, "F32": 4,
    "U64": 8, "I64": 8, "F64": 8, "C64": 8,
}  # fmt: skip
"""The element types of safetensors files, with their sizes."""


@final
@dataclass(frozen=True, slots=True)
class Blob:
    """The bytes of one tensor, in row-major order."""

    dtype: str
    """The name that safetensors gives to the element type, such as ``BF16``."""

    shape: tuple[int, ...]
    data: bytes | memoryview | Callable[[], bytes | memoryview]
    """The bytes, or a function that makes them when they are written, to save memory."""

    @property
    def num_bytes(self) -> int:
        """The size that type and shape require."""
        return math.prod(self.shape) * DTYPE_BYTES[self.dtype]

    def view(self, name: str) -> memoryview:
        """The bytes; raises ValueError when they are too many or too few."""
        data = self.data() if callable(self.data) else self.data
        size = memoryview(data).nbytes
        if size != self.num_bytes:
            raise ValueError(f"{name}: {size} bytes do not make {self.dtype} of {self.shape}")
        return memoryview(data).cast("B") if size else memoryview(b"")


def build_header(
    tensors: Mapping[str, Blob], metadata: Mapping[str, str]
) -> tuple[bytes, list[str]]:
    """The header of a file with these tensors, and their names in the order of their data."""
    names = sorted(tensors, key=lambda name: (-DTYPE_BYTES[tensors[name].dtype], name))
    entries: dict[str, object] = {"__metadata__": dict(metadata)} if metadata else {}
    offset = 0
    for name in names:
        blob = tensors[name]
        if name == "__metadata__":
            raise ValueError(f"{name}: the format reserves this name")
        if not callable(blob.data):
            blob.view(name)
        end = offset + blob.num_bytes
        entries[name] = {
            "dtype": blob.dtype,
            "shape": list(blob.shape),
            "data_offsets": [offset, end],
        }
        offset = end
    text = json.dumps(entries, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)  # the data must start at a multiple of 8
    return len(text).to_bytes(8, "little") + text, names


_CHUNK_BYTES = 1 << 24
_SMALL_BYTES = 1 << 17
_MAX_AHEAD = 1 << 30  # bytes that were written and not yet hashed


def write_bytes(path: Path, data: bytes) -> None:
    """Write ``data`` to ``path`` completely and durably, or raise and keep the old file."""
    system.stage(path, lambda file: system.write_all(file, data))


def write_text(path: Path, text: str) -> None:
    """Put ``text`` at ``path`` as UTF-8; lone surrogates are written as escapes."""
    write_bytes(path, text.encode("utf-8", "backslashreplace"))


def write_json(path: Path, value: object) -> None:
    """Put ``value`` at ``path`` as JSON, converted by ``encode_json``."""
    write_bytes(path, encode_json(value, indent=1) + b"\n")


def find_object(path: Path) -> dict[str, Any]:
    """The object that ``write_json`` put at ``path``; empty if it cannot be read."""
    try:
        value = decode_json(read_bytes(path))
    except (OSError, ValueError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}


def remove_file(path: Path) -> None:
    """Remove a file, without a sync: it may reappear after a power failure."""
    with system.write_errors(path, "removed"):
        system.operations.unlink(path)


def make_dir(path: Path, *, exist_ok: bool = False) -> None:
    """Make a folder and its missing parents; raise when it exists already, unless ``exist_ok``."""
    if exist_ok and path.is_dir():
        return
    missing = [path]
    while not missing[-1].parent.exists():
        missing.append(missing[-1].parent)
    with system.write_errors(path, "made"):
        for parent in reversed(missing[1:]):
            with suppress(FileExistsError):  # another run made it meanwhile
                system.operations.mkdir(parent)
                system.sync_dir(parent.parent)
        try:
            system.operations.mkdir(path)
        except FileExistsError:
            if not exist_ok or not path.is_dir():  # otherwise another process made it meanwhile
                raise
        system.sync_dir(path.parent)


def make_inner_dir(path: Path) -> None:
    """Make a folder if it is missing; refuse a link, which others may have put there."""
    with system.write_errors(path, "made"):
        if path.is_symlink():
            raise OSError(errno.ELOOP, "is a link")
        make_dir(path, exist_ok=True)


def write_safetensors(
    path: Path, tensors: Mapping[str, Blob], metadata: Mapping[str, str] | None = None
) -> str:
    """Put tensors at ``path`` in the safetensors format; returns the file's SHA-256."""
    with Hasher() as hasher:
        system.stage(path, tensor_writer(tensors, metadata or {}, hasher))
        return hasher.digest()


def tensor_writer(
    tensors: Mapping[str, Blob], metadata: Mapping[str, str], hasher: Hasher
) -> Callable[[int], None]:
    """A function that writes a safetensors file to a descriptor and hashes it."""
    header, names = build_header(tensors, metadata)

    def fill(descriptor: int) -> None:
        for view in chain([memoryview(header)], (tensors[name].view(name) for name in names)):
            for start in range(0, len(view), _CHUNK_BYTES):
                chunk = view[start : start + _CHUNK_BYTES]
                hasher.add(chunk)
                system.write_all(descriptor, chunk)

    return fill


@final
class Hasher:
    """The SHA-256 of what is being written, computed in another thread."""

    def __init__(self) -> None:
        import hashlib
        from concurrent.futures import ThreadPoolExecutor

        self._digest = hashlib.sha256()
        self._executor = ThreadPoolExecutor(max_workers=1)
        self._waiting: deque[tuple[Future[None], int]] = deque()
        self._waiting_bytes = 0

    def add(self, chunk: memoryview) -> None:
        """Hash ``chunk`` soon; it must not change meanwhile."""
        while self._waiting and (self._waiting_bytes > _MAX_AHEAD or self._waiting[0][0].done()):
            self._wait()
        if len(chunk) < _SMALL_BYTES and not self._waiting:  # not worth waking the other thread
            self._digest.update(chunk)
        else:
            self._waiting.append((self._executor.submit(self._digest.update, chunk), len(chunk)))
            self._waiting_bytes += len(chunk)

    def digest(self) -> str:
        """The SHA-256 of everything that was added."""
        while self._waiting:
            self._wait()
        return self._digest.hexdigest()

    def _wait(self) -> None:
        hashed, size = self._waiting.popleft()
        hashed.result()
        self._waiting_bytes -= size

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._executor.shutdown(cancel_futures=True)


STAGING = ".staging-"
"""Prefix of folders that are not complete."""

REMOVING = ".removing-"
"""Prefix of folders that are being removed."""

_NO_SYMLINKS = (errno.EPERM, errno.ENOTSUP, errno.ENOSYS, errno.EINVAL)


@final
class StagedDir:
    """A folder that is being filled beside its final place; each of its files is synced."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def write_bytes(self, name: str, data: bytes) -> str:
        """Put ``data`` into the file ``name``; returns its SHA-256."""
        import hashlib

        system.create(self.path / name, lambda file: system.write_all(file, data))
        return hashlib.sha256(data).hexdigest()

    def write_safetensors(self, name: str, tensors: Mapping[str, Blob]) -> str:
        """Put tensors into the file ``name``; returns its SHA-256."""
        with Hasher() as hasher:
            system.create(self.path / name, tensor_writer(tensors, {"format": "pt"}, hasher))
            return hasher.digest()


@contextmanager
def staged_dir(target: Path, owner: str) -> Iterator[StagedDir]:
    """A folder to fill, which gets the name ``target`` when the block ends, and not before.

    After any failure ``target`` is complete and synced, or missing. It must not exist before;
    ``owner`` tells ``remove_stale`` who wrote it.
    """
    staging = target.with_name(f"{STAGING}{target.name}-{owner}")
    with system.write_errors(target):
        if target.exists():
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST))
        system.operations.mkdir(staging)
        try:
            yield StagedDir(staging)
            system.sync_dir(staging)
            system.operations.replace(staging, target)
        except BaseException:
            with suppress(OSError):
                _remove(staging)
            raise
        system.sync_dir(target.parent)


def replace_link(path: Path, name: str) -> None:
    """Point ``path`` to its neighbour ``name``, atomically; a text file without symlinks."""
    temporary = system.temporary_name(path)
    with system.write_errors(path):
        try:
            system.operations.symlink(name, temporary)
        except OSError as error:
            if error.errno not in _NO_SYMLINKS:
                raise
            system.stage(path, lambda file: system.write_all(file, name.encode()))
            return
        try:
            system.operations.replace(temporary, path)
        except BaseException:
            with suppress(OSError):
                system.operations.unlink(temporary)
            raise
        system.sync_dir(path.parent)


def rename(path: Path, target: Path) -> None:
    """Rename a file or folder within its folder, durably."""
    with system.write_errors(path, "renamed"):
        system.operations.replace(path, target)
        system.sync_dir(path.parent)


def remove_tree(path: Path, owner: str) -> None:
    """Remove a folder atomically: it is renamed first, to an unused name."""
    with system.write_errors(path, "removed"):
        number = 0
        gone = path.with_name(f"{REMOVING}{path.name}-{owner}")
        while os.path.lexists(gone):
            number += 1
            gone = path.with_name(f"{REMOVING}{path.name}.{number}-{owner}")
        system.operations.replace(path, gone)
        system.sync_dir(path.parent)
        _remove(gone)


def remove_stale(folder: Path, is_stale: Callable[[str], bool]) -> list[str]:
    """Remove temporary files and folders that killed processes left in ``folder``.

    ``is_stale`` decides by the owner. Returns the names that were removed.
    """
    removed = []
    with system.write_errors(folder, "cleaned"), suppress(FileNotFoundError):
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
        system.operations.rmdir(path)
    else:
        system.operations.unlink(path)


_NO_HARD_LINKS = (*_NO_SYMLINKS, errno.EXDEV, errno.EACCES, errno.EMLINK)
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


def write_stream(path: Path, source: IO[bytes]) -> None:
    """Write what an open file still has to a new file, which must be in a staged folder."""

    def fill(descriptor: int) -> None:
        while chunk := source.read(1 << 20):
            system.write_all(descriptor, chunk)

    with system.write_errors(path):
        system.create(path, fill)


def link_or_copy(source: Path, target: Path) -> None:
    """Make ``target`` a hard link to ``source``, which must exist; a copy without hard links."""
    with system.write_errors(target):
        try:
            system.operations.link(source, target)
        except OSError as error:
            if error.errno not in _NO_HARD_LINKS:
                raise
            write_readonly(target, read_bytes(source))
