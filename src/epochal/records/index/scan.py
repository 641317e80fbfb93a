"""Which run folders there are, and which of them changed since the index looked at them."""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING, NamedTuple, final

from epochal.records.layout.process import host_name
from epochal.records.layout.run_folders import MAX_DEPTH, looks_like_run_folder

if TYPE_CHECKING:
    from collections.abc import Mapping

_AT_WORK = ("starting", "running")
_EDITED = ("README.md", "status.json")
"""What people edit, or programs of theirs, in place: the folder's time does not tell of that."""

_YOUNG_SECONDS = 2.0
"""For how long a folder may change again without getting another time: clocks of files tick."""

RECENT_STAMP = "young"
"""The stamp of a folder that was read while it was young: it is read again."""


class IndexedRun(NamedTuple):
    """One run as the index knows it."""

    id: int
    stamp: str
    status: str
    host: str
    points: int

    @property
    def is_inactive(self) -> bool:
        """Whether only a change of its folder can change what is known of it."""
        # A process of this machine that is gone stays gone; another machine may be heard again.
        is_away = self.status == "lost" and self.host != host_name()
        return self.status not in _AT_WORK and not is_away


class ScannedRun(NamedTuple):
    """One run folder on disk."""

    path: str
    """From the folder of all runs on, with slashes; ``.`` if that is a run itself."""

    stamp: str
    is_changed: bool
    """Whether the index does not know it as it is now."""


def scan_run_folders(root: str, known: Mapping[str, IndexedRun]) -> list[ScannedRun]:
    """Every run folder below ``root``; those that are known and unchanged are not looked into.

    A folder gets another time when a file in it is written anew, as all of a record are; what
    people edit may be written in place, so it is looked at too.
    """
    walk = _RunScanner(known)
    walk.visit(root, ".", MAX_DEPTH)
    return walk.found


@final
class _RunScanner:
    """One way through all folders; the system is asked as little as possible, and by text."""

    def __init__(self, known: Mapping[str, IndexedRun]) -> None:
        self.found: list[ScannedRun] = []
        self._known = known
        self._seen: set[tuple[int, int]] = set()
        self._young = time.time_ns() - int(_YOUNG_SECONDS * 1e9)

    def visit(self, folder: str, path: str, depth: int) -> None:
        """Look at a folder and, if it is no run, at those in it."""
        try:
            place = os.stat(folder)  # noqa: PTH116 - ten thousand times, and paths are slow
        except OSError:  # gone meanwhile, or not ours to read
            return
        spot = (place.st_dev, place.st_ino)
        if spot in self._seen:  # a link that leads back, or to the same run
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
            for name in sorted(inner):
                if not name.startswith(".") and _is_folder(inner[name]):
                    below = name if path == "." else f"{path}/{name}"
                    self.visit(f"{folder}/{name}", below, depth - 1)

    def _stamp(self, folder: str, place: os.stat_result) -> str:
        newest, written = place.st_ctime_ns, ""
        for name in _EDITED:
            try:
                file = os.stat(f"{folder}/{name}")  # noqa: PTH116
            except OSError:
                written += ":-"
            else:
                newest = max(newest, file.st_ctime_ns)
                written += f":{file.st_mtime_ns}:{file.st_size}"
        if newest > self._young:
            return RECENT_STAMP
        return f"{place.st_ino}:{place.st_mtime_ns}:{place.st_ctime_ns}{written}"


def _is_folder(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_dir()
    except OSError:  # a link in a circle
        return False
