"""How much of a disk folders take, and how much of it would be free without them."""

from __future__ import annotations

import os
import stat
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, final

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

_BLOCK_BYTES = 512  # the unit of st_blocks, whatever blocks a disk has


@final
@dataclass
class FreedSpace:
    """What is freed when everything that was added is deleted.

    A file with several names, such as code that runs share, is freed with the last of them.
    """

    _alone: int = 0
    _shared: dict[tuple[int, int], tuple[int, int]] = field(default_factory=dict)
    """For each file with several names: its bytes, and how many names are not yet added."""

    @property
    def freed_bytes(self) -> int:
        """So many bytes."""
        return self._alone + sum(size for size, left in self._shared.values() if left == 0)

    def add_store(self, folder: Path) -> None:
        """Count in the names that files have here, but no file that has no other name.

        So it is with a store that lets go of what nobody else has any more.
        """
        for entry in _walk(str(folder)):
            place = (entry.st_dev, entry.st_ino)
            if place in self._shared:
                size, left = self._shared[place]
                self._shared[place] = size, left - 1

    def add(self, folder: Path) -> None:
        """Count a folder in, or a file; links are not followed."""
        for entry in _walk(str(folder)):
            size = entry.st_blocks * _BLOCK_BYTES if hasattr(entry, "st_blocks") else entry.st_size
            if entry.st_nlink < 2 or _is_folder(entry):
                self._alone += size
            else:
                place = (entry.st_dev, entry.st_ino)
                _, left = self._shared.get(place, (size, entry.st_nlink))
                self._shared[place] = size, left - 1


def measure_freed_bytes(folder: Path) -> int:
    """The bytes that are free when ``folder`` alone is deleted."""
    usage = FreedSpace()
    usage.add(folder)
    return usage.freed_bytes


def _walk(path: str) -> Iterator[os.stat_result]:
    try:
        status = os.lstat(path)
    except OSError:  # gone meanwhile
        return
    yield status
    if not _is_folder(status):
        return
    try:
        with os.scandir(path) as entries:
            names = [entry.path for entry in entries]
    except OSError:  # not ours to read
        return
    for name in names:
        yield from _walk(name)


def _is_folder(status: os.stat_result) -> bool:
    return stat.S_ISDIR(status.st_mode)
