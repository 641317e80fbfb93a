"""Finds run folders, and the folder ``.epochal`` beside them: index, mailbox and shared code."""

from __future__ import annotations

import os
import re
from contextlib import suppress
from typing import TYPE_CHECKING

from epochal import durable

if TYPE_CHECKING:
    from collections.abc import Iterator, Set
    from pathlib import Path

MAX_DEPTH = 6
"""Maximum depth of a run below the folder of all runs."""

_TIME_ID = re.compile(r"\d{8}-\d{6}-[0-9a-f]{4}")


def iter_run_folders(root: Path) -> Iterator[Path]:
    """Every run folder below ``root``, or ``root`` if it is one."""
    yield from _walk(root, MAX_DEPTH, set())


def is_run_folder(path: Path) -> bool:
    """Whether a folder is a run folder."""
    try:
        entries = {entry.name for entry in path.iterdir()}
        return looks_like_run_folder(path.resolve().name, entries)
    except (OSError, ValueError):
        return False


def looks_like_run_folder(name: str, entries: Set[str]) -> bool:
    """Whether a folder with this name and these entries is a run folder."""
    return "run.json" in entries or "status.json" in entries or bool(_TIME_ID.fullmatch(name))


def parse_start_time(run_id: str) -> str:
    """The local start time in the id of a run; empty for other names."""
    if not _TIME_ID.fullmatch(run_id):
        return ""
    return f"{run_id[:4]}-{run_id[4:6]}-{run_id[6:8]}T{run_id[9:11]}:{run_id[11:13]}"


def _walk(folder: Path, depth: int, seen: set[tuple[int, int]]) -> Iterator[Path]:
    try:
        place = folder.stat()
        entries = sorted(os.scandir(folder), key=lambda entry: entry.name)
    except OSError:  # deleted meanwhile, or not readable
        return
    if (place.st_dev, place.st_ino) in seen:  # a circular link
        return
    seen.add((place.st_dev, place.st_ino))
    if looks_like_run_folder(folder.name, {entry.name for entry in entries}):
        yield folder
    elif depth:
        for entry in entries:
            if not entry.name.startswith(".") and entry.is_dir():
                yield from _walk(folder / entry.name, depth - 1, seen)


EPOCHAL_DIR = ".epochal"
"""Name of the folder below the folder of all runs; a search for runs skips it."""

INDEX_FILE = "index.db"
"""Name of the index of all runs in this folder."""

_IGNORE = "# Written by Epochal: nothing in here belongs into a repository.\n*\n"


def make_epochal_dir(root: Path) -> Path:
    """The folder ``.epochal`` below ``root``, created if missing.

    Args:
        root: Folder of all runs, as ``record.log_dir`` names it.

    Raises:
        OSError: It cannot be created.
    """
    home = root / EPOCHAL_DIR
    if not home.is_dir():
        try:
            durable.make_dir(home)
        except durable.WriteError:
            if not home.is_dir():  # otherwise another process created it first
                raise
        with suppress(OSError):
            durable.write_text(home / ".gitignore", _IGNORE)
    return home
