"""Contents by their hash, which runs share, and what is known of files that did not change."""

from __future__ import annotations

import errno
import hashlib
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import astuple, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, final

from epochal import durable
from epochal.records.code.file_content import FRESH_NS, FileStamp
from epochal.records.code.framework import get_archive_name

if TYPE_CHECKING:
    from collections.abc import Mapping

    from epochal.records.code.framework import FrameworkPackage

CODE_STORE_DIR = "code"
"""Its name below the folder that belongs to all runs."""

_THREADS = 8


@final
@dataclass(frozen=True, slots=True)
class ContentStore:
    """A folder of files that are named by the SHA-256 of their content.

    It only saves space and time: whatever is gone from it is written anew.
    """

    folder: Path

    def path_of(self, name: str) -> Path:
        """Where the content with this hash is, or would be."""
        return Path(f"{self.folder}/{name[:2]}/{name}")

    def has(self, name: str, size: int) -> bool:
        """Whether it holds this content, as far as that can be told without reading it."""
        return durable.is_untouched(self.path_of(name), size)

    def put(self, contents: Mapping[str, bytes]) -> None:
        """Take in contents by their hashes."""
        for folder in {self.path_of(name).parent for name in contents}:
            folder.mkdir(parents=True, exist_ok=True)
        places = {self.path_of(name): data for name, data in contents.items()}
        if len(places) < 4:
            for place, data in places.items():
                durable.write_readonly(place, data)
            return
        # Several at once, since each waits for the disk.
        with ThreadPoolExecutor(min(_THREADS, len(places))) as pool:
            for done in [pool.submit(durable.write_readonly, *item) for item in places.items()]:
                done.result()

    def keep_package(self, package: FrameworkPackage) -> str:
        """Take in Epochal itself, if it is not there yet; gives its digest.

        Raises:
            OSError: It cannot be read or written.
        """
        memory = self.folder / "epochal.json"
        stamp = package.stamp
        known = durable.find_object(memory)
        digest = known.get("digest")
        is_known = known.get("stamp") == stamp and isinstance(digest, str)
        if is_known and self._has_archive(str(digest), known.get("size")):
            return str(digest)
        digest, data = package.archive()
        self.folder.mkdir(parents=True, exist_ok=True)
        if not self._has_archive(digest, len(data)):
            durable.write_readonly(self.folder / get_archive_name(digest), data)
        if not package.may_still_change:
            durable.write_json(memory, {"stamp": stamp, "digest": digest, "size": len(data)})
        return digest

    def _has_archive(self, digest: str, size: object) -> bool:
        return isinstance(size, int) and durable.is_untouched(
            self.folder / get_archive_name(digest), size
        )

    def remove_unused(self) -> int:
        """Remove what no run's folder shares any more; gives the bytes that were freed.

        A snapshot that is being taken meanwhile writes anew what it misses.
        """
        freed = 0
        for path in (*self.folder.glob("??/*"), *self.folder.glob(get_archive_name("*"))):
            with suppress(OSError):
                status = path.stat()
                if status.st_nlink == 1:
                    durable.remove_file(path)
                    freed += status.st_size
        return freed


@final
@dataclass(frozen=True, slots=True)
class CachedFile:
    """What a file was when it was last read."""

    stamp: FileStamp
    sha256: str
    size: int
    is_redacted: bool


@final
@dataclass
class FileCache:
    """The files of one project as earlier snapshots read them, so that these need not be read.

    Args:
        path: The file that remembers them.
        key: What else their contents depend on; others are forgotten.
    """

    path: Path | None
    key: str = ""
    files: dict[str, CachedFile] = field(default_factory=dict)
    reported: frozenset[str] = frozenset()
    """What people know to be left out."""

    has_changed: bool = False

    @classmethod
    def load(cls, store: ContentStore | None, project: Path, key: str) -> FileCache:
        """What is known of the files of ``project``; nothing without a store."""
        if store is None:
            return cls(None, key)
        name = hashlib.sha256(str(project).encode("utf-8", "surrogateescape")).hexdigest()[:16]
        seen = cls(store.folder / f"seen-{name}.json", key)
        value = durable.find_object(store.folder / f"seen-{name}.json")
        told = value.get("told")
        seen.reported = frozenset(map(str, told if isinstance(told, list) else ()))
        if value.get("key") == key:
            with suppress(TypeError, ValueError, AttributeError):  # then all is read again
                seen.files.update(
                    {
                        path: _parse_cached_file(entry)
                        for path, entry in value.get("files", {}).items()
                    }
                )
        return seen

    def find(self, path: str, stamp: FileStamp) -> CachedFile | None:
        """What ``path`` holds, if it is as it was."""
        known = self.files.get(path)
        return known if known is not None and known.stamp == stamp else None

    def add(self, path: str, known: CachedFile) -> None:
        """Remember a file that was read just now, unless it may still change unnoticed."""
        youngest = max(known.stamp.modified, known.stamp.changed)
        if time.time_ns() - youngest > FRESH_NS:
            self.files[path] = known
            self.has_changed = True

    def update_reported(self, paths: frozenset[str]) -> bool:
        """Remember what is left out; whether there is anything that people do not know yet."""
        is_news = not paths <= self.reported
        self.has_changed |= paths != self.reported
        self.reported = paths
        return is_news

    def save(self, paths: set[str]) -> None:
        """Keep what is known of ``paths``; failing costs nothing but time."""
        if self.path is None or not (self.has_changed or self.files.keys() - paths):
            return
        files = {path: known for path, known in self.files.items() if path in paths}
        entries = {
            path: [*astuple(one.stamp), one.sha256, one.size, one.is_redacted]
            for path, one in files.items()
        }
        value = {"key": self.key, "told": sorted(self.reported), "files": entries}
        with suppress(OSError):
            durable.write_bytes(self.path, durable.encode_json(value))


def _parse_cached_file(entry: Any) -> CachedFile:  # noqa: ANN401 - a list from a file that may hold anything
    size, modified, changed, inode, sha256, kept, is_redacted = entry
    stamp = FileStamp(int(size), int(modified), int(changed), int(inode))
    return CachedFile(stamp, str(sha256), int(kept), bool(is_redacted))


def is_missing_file_error(error: OSError) -> bool:
    """Whether a content was gone when it was to be shared."""
    return error.errno == errno.ENOENT
