"""File contents by hash, which runs share, and a cache of unchanged files."""

from __future__ import annotations

import errno
import hashlib
import re
import stat
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
"""Its name below ``.epochal``."""

_THREADS = 8
_HASH = re.compile("[0-9a-f]+")


@final
@dataclass(frozen=True, slots=True)
class ContentStore:
    """A folder of files that are named by the SHA-256 of their content.

    It only saves space and time: missing contents are written again.
    """

    folder: Path

    def path_of(self, name: str) -> Path:
        """The path of the content with this hash."""
        return Path(f"{self.folder}/{name[:2]}/{name}")

    def has(self, name: str, size: int) -> bool:
        """Whether it has this content, judged without reading it."""
        return durable.is_untouched(self.path_of(name), size)

    def put(self, contents: Mapping[str, bytes]) -> None:
        """Add contents by their hashes."""
        for folder in {self.path_of(name).parent for name in contents}:
            folder.mkdir(parents=True, exist_ok=True)
        places = {self.path_of(name): data for name, data in contents.items()}
        if len(places) < 4:
            for place, data in places.items():
                durable.write_readonly(place, data)
            return
        # In parallel, since each write waits for the disk.
        with ThreadPoolExecutor(min(_THREADS, len(places))) as pool:
            for done in [pool.submit(durable.write_readonly, *item) for item in places.items()]:
                done.result()

    def keep_package(self, package: FrameworkPackage) -> str:
        """Add the package of Epochal if it is missing; returns its digest.

        Raises:
            OSError: It cannot be read or written.
        """
        cache = self.folder / "epochal.json"
        stamp = package.stamp
        known = durable.find_object(cache)
        digest = known.get("digest")
        is_known = known.get("stamp") == stamp and isinstance(digest, str)
        if is_known and self._has_archive(str(digest), known.get("size")):
            return str(digest)
        digest, data = package.archive()
        self.folder.mkdir(parents=True, exist_ok=True)
        if not self._has_archive(digest, len(data)):
            durable.write_readonly(self.folder / get_archive_name(digest), data)
        if not package.may_still_change:
            durable.write_json(cache, {"stamp": stamp, "digest": digest, "size": len(data)})
        return digest

    def _has_archive(self, digest: str, size: object) -> bool:
        return isinstance(size, int) and durable.is_untouched(
            self.folder / get_archive_name(digest), size
        )

    def remove_unused(self) -> int:
        """Remove contents that no run links to; returns the freed bytes.

        A concurrent snapshot writes missing contents again.
        """
        freed = 0
        if self.folder.is_symlink() or self.folder.parent.is_symlink():
            return 0  # it may lead to any other folder
        contents = [
            path
            for path in self.folder.glob("??/*")
            if _HASH.fullmatch(path.name)
            and path.name.startswith(path.parent.name)
            and not path.parent.is_symlink()
        ]
        for path in (*contents, *self.folder.glob(get_archive_name("*"))):
            with suppress(OSError):
                status = path.lstat()
                if status.st_nlink == 1 and stat.S_ISREG(status.st_mode):
                    durable.remove_file(path)
                    freed += status.st_size
        return freed


@final
@dataclass(frozen=True, slots=True)
class CachedFile:
    """What was read from a file, and its stamp then."""

    stamp: FileStamp
    sha256: str
    size: int
    is_redacted: bool


@final
@dataclass
class FileCache:
    """A cache of a project's files, so that unchanged files are not read again.

    Args:
        path: The file of the cache.
        key: What else the stored contents depend on; another key empties the cache.
    """

    path: Path | None
    key: str = ""
    files: dict[str, CachedFile] = field(default_factory=dict)
    reported: frozenset[str] = frozenset()
    """Skipped files that were reported to the user."""

    has_changed: bool = False

    @classmethod
    def load(cls, store: ContentStore | None, project: Path, key: str) -> FileCache:
        """The cache of ``project``; empty without a store."""
        if store is None:
            return cls(None, key)
        name = hashlib.sha256(str(project).encode("utf-8", "surrogateescape")).hexdigest()[:16]
        seen = cls(store.folder / f"seen-{name}.json", key)
        value = durable.find_object(store.folder / f"seen-{name}.json")
        reported = value.get("told")
        seen.reported = frozenset(map(str, reported if isinstance(reported, list) else ()))
        if value.get("key") == key:
            with suppress(TypeError, ValueError, AttributeError):  # then all files are read
                seen.files.update(
                    {
                        path: _parse_cached_file(entry)
                        for path, entry in value.get("files", {}).items()
                    }
                )
        return seen

    def find(self, path: str, stamp: FileStamp) -> CachedFile | None:
        """The entry of ``path``, if the file is unchanged."""
        known = self.files.get(path)
        return known if known is not None and known.stamp == stamp else None

    def add(self, path: str, known: CachedFile) -> None:
        """Add a file that was just read, unless it may still change within its timestamp."""
        youngest = max(known.stamp.modified, known.stamp.changed)
        if time.time_ns() - youngest > FRESH_NS:
            self.files[path] = known
            self.has_changed = True

    def update_reported(self, paths: frozenset[str]) -> bool:
        """Remember skipped files; returns whether some were not reported before."""
        has_new = not paths <= self.reported
        self.has_changed |= paths != self.reported
        self.reported = paths
        return has_new

    def save(self, paths: set[str]) -> None:
        """Write the entries of ``paths``; a failure only costs time."""
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
    """Whether a content was removed before it could be linked."""
    return error.errno == errno.ENOENT
