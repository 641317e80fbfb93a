"""Files that are there whole or not at all."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from epochal.durable import system
from epochal.durable.blobs import Blob, lay_out
from epochal.durable.text import encode_json

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from pathlib import Path

_CHUNK_BYTES = 1 << 24
_SMALL_BYTES = 1 << 17


def write_bytes(path: Path, data: bytes) -> None:
    """Put ``data`` at ``path``, whole and durable, or raise and leave the old file alone."""
    system.stage(path, lambda file: system.write_all(file, data))


def write_text(path: Path, text: str) -> None:
    """Put ``text`` at ``path`` as UTF-8; what UTF-8 cannot say is written as an escape."""
    write_bytes(path, text.encode("utf-8", "backslashreplace"))


def write_json(path: Path, value: object) -> None:
    """Put ``value`` at ``path`` as JSON; see ``encode_json`` for what becomes of it."""
    write_bytes(path, encode_json(value, indent=1) + b"\n")


def remove_file(path: Path) -> None:
    """Remove a file; the disk may show it again after a power cut."""
    with system.explained(path, "removed"):
        system.operations.unlink(path)


def make_dir(path: Path) -> None:
    """Make a folder and its missing parents; raise when it exists already."""
    missing = [path]
    while not missing[-1].parent.exists():
        missing.append(missing[-1].parent)
    with system.explained(path, "made"):
        for parent in reversed(missing[1:]):
            with suppress(FileExistsError):  # another run made it in the meantime
                system.operations.mkdir(parent)
                system.sync_dir(parent.parent)
        system.operations.mkdir(path)
        system.sync_dir(path.parent)


def write_safetensors(
    path: Path, tensors: Mapping[str, Blob], metadata: Mapping[str, str] | None = None
) -> str:
    """Put tensors at ``path`` in the safetensors format; returns the file's SHA-256."""
    fill, digest = filler(tensors, metadata or {})
    system.stage(path, fill)
    return digest()


def filler(
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
                    if len(chunk) < _SMALL_BYTES:  # not worth waking the other thread
                        digest.update(chunk)
                        system.write_all(descriptor, chunk)
                    else:
                        hashed = beside.submit(digest.update, chunk)
                        system.write_all(descriptor, chunk)
                        hashed.result()

    return fill, digest.hexdigest
