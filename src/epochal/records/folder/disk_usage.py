"""Measures disk space: of a run folder by part, and what deleting folders would free."""

from __future__ import annotations

import os
import stat
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, final

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@final
@dataclass(frozen=True, kw_only=True, slots=True)
class DiskUsage:
    """One subfolder of a run, or ``files`` for the files beside them."""

    name: str
    num_bytes: int
    num_files: int
    shared_bytes: int
    """Bytes of files with further hard links, such as code that runs share."""


def measure_disk_usage(folder: Path) -> list[DiskUsage]:
    """The parts of a run folder, the largest first, without unreadable ones."""
    sizes: dict[str, list[int]] = {}
    for path in folder.glob("*"):
        part = path.name if path.is_dir() and not path.is_symlink() else "files"
        for status in _walk(str(path)):
            if not _is_folder(status):
                total = sizes.setdefault(part, [0, 0, 0])
                total[0] += status.st_size
                total[1] += 1
                total[2] += status.st_size if status.st_nlink > 1 else 0
    parts = [
        DiskUsage(name=name, num_bytes=size, num_files=count, shared_bytes=shared)
        for name, (size, count, shared) in sizes.items()
    ]
    return sorted(parts, key=lambda part: (-part.num_bytes, part.name))


_BLOCK_BYTES = 512  # the unit of st_blocks


@final
@dataclass
class FreedSpace:
    """The space that is freed when all added folders are deleted.

    A file with several hard links, such as code that runs share, is freed with the last one.
    """

    _unshared: int = 0
    _shared: dict[tuple[int, int], tuple[int, int]] = field(default_factory=dict)
    """For each file with several links: its bytes, and the number of links that were not added."""

    @property
    def freed_bytes(self) -> int:
        """The freed bytes."""
        return self._unshared + sum(size for size, left in self._shared.values() if left == 0)

    def add_store(self, folder: Path) -> None:
        """Add the links in a store, but not files that only the store has.

        The store deletes contents that no run links to.
        """
        for entry in _walk(str(folder)):
            place = (entry.st_dev, entry.st_ino)
            if place in self._shared:
                size, left = self._shared[place]
                self._shared[place] = size, left - 1

    def add(self, folder: Path) -> None:
        """Add a folder or a file; symbolic links are not followed."""
        for entry in _walk(str(folder)):
            size = entry.st_blocks * _BLOCK_BYTES if hasattr(entry, "st_blocks") else entry.st_size
            if entry.st_nlink < 2 or _is_folder(entry):
                self._unshared += size
            else:
                place = (entry.st_dev, entry.st_ino)
                _, left = self._shared.get(place, (size, entry.st_nlink))
                self._shared[place] = size, left - 1


def measure_freed_bytes(folder: Path) -> int:
    """The bytes that are freed when only ``folder`` is deleted."""
    usage = FreedSpace()
    usage.add(folder)
    return usage.freed_bytes


def _walk(path: str) -> Iterator[os.stat_result]:
    """A file, or a folder and all that is in it; symbolic links are not followed."""
    try:
        status = os.lstat(path)
    except OSError:  # deleted meanwhile
        return
    yield status
    if not _is_folder(status):
        return
    try:
        with os.scandir(path) as entries:
            names = [entry.path for entry in entries]
    except OSError:  # not readable
        return
    for name in names:
        yield from _walk(name)


def _is_folder(status: os.stat_result) -> bool:
    return stat.S_ISDIR(status.st_mode)
