"""Archives the package of Epochal that a run uses."""

from __future__ import annotations

import hashlib
import io
import os
import time
import zipfile
import zlib
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, final

from epochal.records.code.file_content import FRESH_NS, read_content
from epochal.records.code.unpack_limits import why_unsafe

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

PACKAGE = "epochal"
_EPOCH = (1980, 1, 1, 0, 0, 0)
_DIGITS = 16
_LEVEL = 3
_MAX_ARCHIVE_BYTES = 1 << 26


def get_archive_name(digest: str) -> str:
    """The name of the archive with this digest."""
    return f"{PACKAGE}-{digest}.zip"


def get_package_dir() -> Path:
    """The folder of the running Epochal."""
    return Path(__file__).absolute().parents[2]


@final
@dataclass(frozen=True)
class FrameworkPackage:
    """The files of Epochal below ``root``."""

    root: Path
    stamps: tuple[tuple[str, int, int], ...]
    """Each file's name, size and time in nanoseconds."""

    @classmethod
    def find(cls, root: Path) -> FrameworkPackage:
        """The package below ``root``.

        Raises:
            OSError: It cannot be read, such as inside a zip file.
        """
        return cls(root, tuple(_stamps(root)))

    @property
    def stamp(self) -> str:
        """A digest that changes whenever a file does."""
        return hashlib.sha256(repr((str(self.root), self.stamps)).encode()).hexdigest()

    @property
    def may_still_change(self) -> bool:
        """Whether a file may change without changing the stamp."""
        return time.time_ns() - max((when for _, _, when in self.stamps), default=0) < FRESH_NS

    def archive(self) -> tuple[str, bytes]:
        """A digest of all files, and a reproducible archive of them."""
        return _archive(self.root, self.stamps)


@lru_cache(maxsize=1)  # a process may start many runs, as sweeps do
def _archive(root: Path, stamps: tuple[tuple[str, int, int], ...]) -> tuple[str, bytes]:
    files, buffer = {name: (root / name).read_bytes() for name, *_ in stamps}, io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for name, data in files.items():
            entry = zipfile.ZipInfo(f"{PACKAGE}/{name}", _EPOCH)
            entry.external_attr = 0o644 << 16
            archive.writestr(entry, data, zipfile.ZIP_DEFLATED, _LEVEL)
    return _digest_files(files.items()), buffer.getvalue()


def digest_package(root: Path) -> str:
    """The digest of the package below ``root``; empty if it cannot be read."""
    try:
        return FrameworkPackage.find(root).archive()[0]
    except OSError:
        return ""


def unpack_framework(archive: Path, target: Path, digest: str) -> None:
    """Unpack the archive with this digest below ``target``, which must exist.

    Raises:
        OSError: It cannot be read or written.
        ValueError: It is not the archive with this digest.
    """
    content = read_content(archive, max_bytes=_MAX_ARCHIVE_BYTES)
    if content is None:
        raise ValueError(f"{archive}: is too large, or no file")
    try:
        with zipfile.ZipFile(io.BytesIO(content.data)) as file:
            if sum(entry.file_size for entry in file.infolist()) > _MAX_ARCHIVE_BYTES:
                raise ValueError(f"{archive}: is too large when unpacked")
            files = {name: file.read(name) for name in file.namelist()}
    # RuntimeError: it is encrypted, or the compression is unknown.
    except (zipfile.BadZipFile, zlib.error, EOFError, RuntimeError) as error:
        raise ValueError(f"{archive}: {error}") from error
    if any(not name.startswith(f"{PACKAGE}/") or why_unsafe(name) for name in files):
        raise ValueError(f"{archive}: names files outside of the package")
    inner = {name.removeprefix(f"{PACKAGE}/"): data for name, data in files.items()}
    if _digest_files(inner.items()) != digest:
        raise ValueError(f"{archive}: is not as recorded")
    for name, data in files.items():
        place = target / name
        place.parent.mkdir(parents=True, exist_ok=True)
        with place.open("xb") as out:
            out.write(data)


def _digest_files(files: Iterable[tuple[str, bytes]]) -> str:
    digest = hashlib.sha256()
    for name, data in files:
        digest.update(f"{name}\0{hashlib.sha256(data).hexdigest()}\n".encode())
    return digest.hexdigest()[:_DIGITS]


def _stamps(root: Path) -> Iterator[tuple[str, int, int]]:
    def refuse(error: OSError) -> None:
        raise error

    for folder, folders, files in os.walk(root, onerror=refuse):
        folders[:] = sorted(name for name in folders if name != "__pycache__")
        inner = os.path.relpath(folder, root)
        for name in sorted(files):
            if not name.endswith(".pyc"):
                status = os.stat(f"{folder}/{name}")  # noqa: PTH116 - a path for each is slow
                path = name if inner == "." else f"{inner}/{name}"
                yield path.replace(os.sep, "/"), status.st_size, status.st_mtime_ns
