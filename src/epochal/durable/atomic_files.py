"""Files that are written atomically: complete or not at all."""

from __future__ import annotations

from collections import deque
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Self, final

from epochal.durable import system
from epochal.durable.encoding import decode_json, encode_json
from epochal.durable.safetensors_layout import Blob, build_header

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from concurrent.futures import Future
    from pathlib import Path

_CHUNK_BYTES = 1 << 24
_SMALL_BYTES = 1 << 17
_MAX_AHEAD = 1 << 30  # bytes that were written and not yet hashed


def write_bytes(path: Path, data: bytes) -> None:
    """Put ``data`` at ``path``, whole and durable, or raise and leave the old file alone."""
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
        value = decode_json(path.read_bytes())
    except (OSError, ValueError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}


def remove_file(path: Path) -> None:
    """Remove a file, without a sync: it may be back after a power cut."""
    with system.write_errors(path, "removed"):
        system.operations.unlink(path)


def make_dir(path: Path) -> None:
    """Make a folder and its missing parents; raise when it exists already."""
    missing = [path]
    while not missing[-1].parent.exists():
        missing.append(missing[-1].parent)
    with system.write_errors(path, "made"):
        for parent in reversed(missing[1:]):
            with suppress(FileExistsError):  # another run made it meanwhile
                system.operations.mkdir(parent)
                system.sync_dir(parent.parent)
        system.operations.mkdir(path)
        system.sync_dir(path.parent)


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

    def views() -> Iterator[memoryview]:
        yield memoryview(header)
        yield from (tensors[name].view(name) for name in names)

    def fill(descriptor: int) -> None:
        for view in views():
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
