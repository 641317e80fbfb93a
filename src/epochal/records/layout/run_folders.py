"""Finds run folders, and the folder ``.epochal`` beside them: index, mailbox and shared code."""

from __future__ import annotations

import os
import re
import time
from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple, final

from epochal import durable
from epochal.records.layout.process import host_name
from epochal.records.layout.run_status import ACTIVE_STATUSES

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Set
    from pathlib import Path

_MAX_DEPTH = 6
"""Maximum depth of a run below the folder of all runs."""

_TIME_ID = re.compile(r"\d{8}-\d{6}-[0-9a-f]{4}")


def find_run_folders(root: Path) -> list[Path]:
    """Every run folder below ``root``, or ``root`` if it is one."""
    return [root / one.path for one in scan_run_folders(str(root.absolute()), {})]


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


_EDITED_FILES = ("README.md", "status.json")
"""Files that users edit in place, which does not change the time of the folder."""

_RECENT_SECONDS = 2.0
"""Age below which a folder may change again within the resolution of its time."""

RECENT_STAMP = "young"
"""The stamp of a folder that was just changed; it is read again."""


class IndexedRun(NamedTuple):
    """One run in the index."""

    id: int
    stamp: str
    status: str
    host: str
    points: int

    @property
    def is_inactive(self) -> bool:
        """Whether its facts can change only with its folder."""
        # A lost process of this machine stays lost; the heartbeat of another one may return.
        is_remote = self.status == "lost" and self.host != host_name()
        return self.status not in ACTIVE_STATUSES and not is_remote


class ScannedRun(NamedTuple):
    """One run folder on disk."""

    path: str
    """Relative to the folder of all runs, with slashes; ``.`` if that is a run itself."""

    stamp: str
    is_changed: bool
    """Whether the index has no entry with this stamp."""


def scan_run_folders(
    root: str, known: Mapping[str, IndexedRun], progress: Callable[[str], None] = lambda _: None
) -> list[ScannedRun]:
    """Every run folder below ``root``; known and unchanged ones are not listed.

    The time of a folder changes when a file in it is replaced, as Epochal does. Files that users
    edit in place are checked, too.
    """
    scanner = _RunScanner(known, progress)
    scanner.visit(root, ".", _MAX_DEPTH)
    return scanner.found


@final
class _RunScanner:
    """Scans folders with as few system calls as possible."""

    def __init__(self, known: Mapping[str, IndexedRun], progress: Callable[[str], None]) -> None:
        self.found: list[ScannedRun] = []
        self._progress = progress
        self._known = known
        self._seen: set[tuple[int, int]] = set()
        self._recent_ns = time.time_ns() - int(_RECENT_SECONDS * 1e9)

    def visit(self, folder: str, path: str, depth: int) -> None:
        """Check a folder and, if it is not a run, its subfolders."""
        try:
            place = os.stat(folder)  # noqa: PTH116 - Path is slow
        except OSError:  # deleted meanwhile, or not readable
            return
        spot = (place.st_dev, place.st_ino)
        if spot in self._seen:  # a link to a folder that was visited
            return
        self._seen.add(spot)
        one = self._known.get(path)
        if one is not None and one.stamp == (stamp := self._stamp(folder, place)) != RECENT_STAMP:
            self.found.append(ScannedRun(path, stamp, is_changed=False))
            return
        try:
            with os.scandir(folder) as entries:
                inner = {entry.name: entry for entry in entries}
        except OSError:
            return
        if looks_like_run_folder(os.path.basename(folder), inner.keys()):  # noqa: PTH119
            stamp = self._stamp(folder, place)
            self.found.append(ScannedRun(path, stamp, is_changed=True))
        elif depth:
            self._progress(f"looking for runs: {len(self.found)} so far")
            for name in sorted(inner):
                if not name.startswith(".") and _is_folder(inner[name]):
                    below = name if path == "." else f"{path}/{name}"
                    self.visit(f"{folder}/{name}", below, depth - 1)

    def _stamp(self, folder: str, place: os.stat_result) -> str:
        newest, written = place.st_ctime_ns, ""
        for name in _EDITED_FILES:
            try:
                file = os.stat(f"{folder}/{name}")  # noqa: PTH116
            except OSError:
                written += ":-"
            else:
                newest = max(newest, file.st_ctime_ns)
                written += f":{file.st_mtime_ns}:{file.st_size}"
        if newest > self._recent_ns:
            return RECENT_STAMP
        return f"{place.st_ino}:{place.st_mtime_ns}:{place.st_ctime_ns}{written}"


def _is_folder(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_dir()
    except OSError:  # a circular link
        return False


EPOCHAL_DIR = ".epochal"
"""Name of the folder below the folder of all runs; a search for runs skips it."""

INDEX_FILE = "index.db"
"""Name of the index of all runs in this folder."""

_IGNORE = "# Written by Epochal: keep this folder out of repositories.\n*\n"


def make_epochal_dir(root: Path) -> Path:
    """The folder ``.epochal`` below the folder of all runs; created if missing, or an OSError."""
    home = root / EPOCHAL_DIR
    if home.is_symlink() or not home.is_dir():
        durable.make_inner_dir(home)
        with suppress(OSError):
            durable.write_text(home / ".gitignore", _IGNORE)
    return home
