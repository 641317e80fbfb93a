"""Measures the disk space of a run folder by part."""

from __future__ import annotations

import os
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, final

if TYPE_CHECKING:
    from collections.abc import Iterator


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
    for name, status in _walk(folder):
        total = sizes.setdefault(name, [0, 0, 0])
        total[0] += status.st_size
        total[1] += 1
        total[2] += status.st_size if status.st_nlink > 1 else 0
    parts = [
        DiskUsage(name=name, num_bytes=size, num_files=count, shared_bytes=shared)
        for name, (size, count, shared) in sizes.items()
    ]
    return sorted(parts, key=lambda part: (-part.num_bytes, part.name))


def _walk(folder: Path) -> Iterator[tuple[str, os.stat_result]]:
    """Every file with the name of its part; symbolic links are not followed."""
    for base, _, names in os.walk(folder):
        inner = Path(base).relative_to(folder).parts
        for name in names:
            with suppress(OSError):  # a running run replaces its files
                yield (inner[0] if inner else "files"), (Path(base) / name).lstat()
