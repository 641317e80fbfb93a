"""Which folders are runs: those below a folder, and what the name of one says."""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Set
    from pathlib import Path

MAX_DEPTH = 6
"""How deep below the folder of all runs a run may lie."""

_TIME_ID = re.compile(r"\d{8}-\d{6}-[0-9a-f]{4}")


def iter_run_folders(root: Path) -> Iterator[Path]:
    """The folder of every run below ``root``, which may be one itself."""
    yield from _walk(root, MAX_DEPTH, set())


def is_run_folder(path: Path) -> bool:
    """Whether a folder is that of a run."""
    try:
        entries = {entry.name for entry in path.iterdir()}
        return looks_like_run_folder(path.resolve().name, entries)
    except (OSError, ValueError):
        return False


def looks_like_run_folder(name: str, entries: Set[str]) -> bool:
    """Whether a folder of this name, in which these lie, is that of a run."""
    return "run.json" in entries or "status.json" in entries or bool(_TIME_ID.fullmatch(name))


def parse_start_time(run_id: str) -> str:
    """When a run began by its name, in the time of its machine; empty for another name."""
    if not _TIME_ID.fullmatch(run_id):
        return ""
    return f"{run_id[:4]}-{run_id[4:6]}-{run_id[6:8]}T{run_id[9:11]}:{run_id[11:13]}"


def _walk(folder: Path, depth: int, seen: set[tuple[int, int]]) -> Iterator[Path]:
    try:
        place = folder.stat()
        entries = sorted(os.scandir(folder), key=lambda entry: entry.name)
    except OSError:  # gone meanwhile, or not ours to read
        return
    if (place.st_dev, place.st_ino) in seen:  # a link that leads back
        return
    seen.add((place.st_dev, place.st_ino))
    if looks_like_run_folder(folder.name, {entry.name for entry in entries}):
        yield folder
    elif depth:
        for entry in entries:
            if not entry.name.startswith(".") and entry.is_dir():
                yield from _walk(folder / entry.name, depth - 1, seen)
