"""Archives the package of Epochal that a run uses."""

from __future__ import annotations

import hashlib
import io
import os
import time
import zipfile
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, final

from epochal import durable
from epochal.records.code.file_content import FRESH_NS

if TYPE_CHECKING:
    from collections.abc import Iterator

PACKAGE = "epochal"
_EPOCH = (1980, 1, 1, 0, 0, 0)
_DIGITS = 16
_LEVEL = 3


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
    digest, buffer = hashlib.sha256(), io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for name, *_ in stamps:
            data = (root / name).read_bytes()
            digest.update(f"{name}\0{hashlib.sha256(data).hexdigest()}\n".encode())
            entry = zipfile.ZipInfo(f"{PACKAGE}/{name}", _EPOCH)
            entry.external_attr = 0o644 << 16
            archive.writestr(entry, data, zipfile.ZIP_DEFLATED, _LEVEL)
    return digest.hexdigest()[:_DIGITS], buffer.getvalue()


def digest_package(root: Path) -> str:
    """The digest of the package below ``root``; empty if it cannot be read."""
    try:
        return FrameworkPackage.find(root).archive()[0]
    except OSError:
        return ""


def unpack_framework(archive: Path, target: Path) -> None:
    """Unpack an archive below ``target``, which must exist.

    Raises:
        OSError: It cannot be read or written.
        ValueError: It is no archive of Epochal.
    """
    try:
        with durable.open_regular(archive) as data, zipfile.ZipFile(data) as file:
            names = file.namelist()
            if any(not _is_inside(name) for name in names):
                raise ValueError(f"{archive}: names files outside of the package")
            file.extractall(target, names)
    except zipfile.BadZipFile as error:
        raise ValueError(f"{archive}: {error}") from error


def _is_inside(name: str) -> bool:
    return name.startswith(f"{PACKAGE}/") and ".." not in name.split("/")


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
