"""The only module that writes files which must survive a crash.

A file is staged beside its final name, synced, renamed, and its folder is synced: readers
see the old content or the new one, never a mixture. Appended records are whole or absent.
Every call to the operating system goes through ``operations``, so that each of them can be
made to fail, and what then remains on disk can be looked at. Failures are ``WriteError``.
"""

from __future__ import annotations

import dataclasses
import errno
import functools
import json
import math
import os
import zlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self, final

from typing_extensions import override

if TYPE_CHECKING:
    from pathlib import Path

DTYPE_BYTES: Mapping[str, int] = {
    "BOOL": 1, "U8": 1, "I8": 1, "F8_E4M3": 1, "F8_E5M2": 1,
    "U16": 2, "I16": 2, "F16": 2, "BF16": 2,
    "U32": 4, "I32": 4, "F32": 4,
    "U64": 8, "I64": 8, "F64": 8, "C64": 8,
}  # fmt: skip
"""The element types of safetensors files, with their sizes."""

_CHUNK_BYTES = 1 << 24
_NOT_FINITE = {"$nan": math.nan, "$inf": math.inf, "-$inf": -math.inf}
_CRC_KEY = b',"crc":'


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


@final
@dataclass(frozen=True, slots=True)
class Blob:
    """The bytes of one tensor, in row-major order."""

    dtype: str
    """The name that safetensors gives to the element type, such as ``BF16``."""

    shape: tuple[int, ...]
    data: bytes | memoryview


def write_safetensors(
    path: Path, tensors: Mapping[str, Blob], metadata: Mapping[str, str] | None = None
) -> str:
    """Put tensors at ``path`` in the safetensors format; returns the file's SHA-256."""
    import hashlib
    from concurrent.futures import ThreadPoolExecutor

    digest = hashlib.sha256()
    names = sorted(tensors, key=lambda name: (-DTYPE_BYTES[tensors[name].dtype], name))
    header = _safetensors_header(tensors, names, metadata or {})

    def fill(descriptor: int) -> None:
        with ThreadPoolExecutor(max_workers=1) as beside:
            for data in (header, *(tensors[name].data for name in names)):
                view = memoryview(data).cast("B") if len(data) else memoryview(b"")
                for start in range(0, len(view), _CHUNK_BYTES):
                    chunk = view[start : start + _CHUNK_BYTES]
                    hashed = beside.submit(digest.update, chunk)
                    _write_all(descriptor, chunk)
                    hashed.result()

    _stage(path, fill)
    return digest.hexdigest()


def _safetensors_header(
    tensors: Mapping[str, Blob], names: list[str], metadata: Mapping[str, str]
) -> bytes:
    entries: dict[str, object] = {"__metadata__": dict(metadata)} if metadata else {}
    offset = 0
    for name in names:
        blob = tensors[name]
        size = memoryview(blob.data).nbytes
        if size != math.prod(blob.shape) * DTYPE_BYTES[blob.dtype] or name == "__metadata__":
            raise ValueError(f"{name}: {size} bytes do not make {blob.dtype} of {blob.shape}")
        entries[name] = {
            "dtype": blob.dtype,
            "shape": list(blob.shape),
            "data_offsets": [offset, offset + size],
        }
        offset += size
    text = json.dumps(entries, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)  # the data must start at a multiple of 8
    return len(text).to_bytes(8, "little") + text


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


def encode_line(value: Mapping[str, object]) -> bytes:
    """One line of JSON whose last entry, ``crc``, is the CRC-32 of the text without it."""
    text = encode_json(value)
    return b"%s%s%d}\n" % (text[:-1], _CRC_KEY, zlib.crc32(text))


def decode_line(line: bytes) -> dict[str, Any] | None:
    """What ``encode_line`` was given, or None when the line is damaged."""
    text, found, crc = line.rstrip(b"\n").rpartition(_CRC_KEY)
    try:
        value = decode_json(text + b"}" if found else line)
        is_whole = not found or int(crc.rstrip(b"}")) == zlib.crc32(text + b"}")
    except (ValueError, RecursionError):
        return None
    return value if is_whole and isinstance(value, dict) else None


def encode_json(value: object, *, indent: int | None = None) -> bytes:
    """Valid JSON for almost anything.

    Infinities and NaN become ``"$inf"``, ``"-$inf"`` and ``"$nan"``, as in configs; paths and
    other objects become their ``str``; arrays become lists; dataclasses become mappings.
    """
    plain = _plain(value)
    separators = (",", ":") if indent is None else None
    dump = functools.partial(json.dumps, plain, indent=indent, separators=separators)
    try:
        return dump(ensure_ascii=False, allow_nan=False).encode()
    except UnicodeEncodeError:  # lone surrogates exist in JSON as escapes only
        return dump(allow_nan=False).encode()


def decode_json(data: bytes) -> object:
    """The value of a JSON text, with ``"$nan"`` and its kin as floats; may raise ValueError."""
    value = json.loads(data)
    return _revive(value) if b'$inf"' in data or b'"$nan"' in data else value


def _revive(value: object) -> object:
    if isinstance(value, dict):
        return {key: _revive(child) for key, child in value.items()}
    if isinstance(value, list):
        return [_revive(child) for child in value]
    return _NOT_FINITE.get(value, value) if isinstance(value, str) else value


def _plain(value: object) -> object:
    if value is None or isinstance(value, int | str):
        return value
    if isinstance(value, float):
        if math.isfinite(value):
            return value
        return "$nan" if math.isnan(value) else "$inf" if value > 0 else "-$inf"
    if isinstance(value, Mapping):
        return {str(key): _plain(child) for key, child in value.items()}
    return _plain_object(value)


def _plain_object(value: object) -> object:
    if isinstance(value, list | tuple):
        return [_plain(child) for child in value]
    if isinstance(value, set | frozenset):
        return [_plain(child) for child in sorted(value, key=str)]
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {f.name: _plain(getattr(value, f.name)) for f in dataclasses.fields(value)}
    to_list = getattr(value, "tolist", None)  # arrays and tensors, without importing either
    return _plain(to_list()) if callable(to_list) else str(value)


def _stage(path: Path, fill: Callable[[int], None]) -> None:
    # Beside the target, never in the system's folder for temporary files: a rename
    # across file systems would be a copy, and a copy can be interrupted.
    temporary = path.with_name(f".{path.name[:40]}.{os.getpid()}-{os.urandom(4).hex()}.tmp")
    with _explained(path):
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_CLOEXEC", 0)
        descriptor = operations.open(temporary, flags, 0o666)
        try:
            try:
                fill(descriptor)
                operations.fsync(descriptor)
            finally:
                operations.close(descriptor)
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
