"""Scans the folder of a project for files to copy, without following links."""

from __future__ import annotations

import os
import stat
import tempfile
from collections import deque
from contextlib import suppress
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, TypeAlias, final

from epochal.records.code.code_manifest import (
    MAX_COPY_BYTES,
    RESTORED_FILE,
    SkippedEntry,
    SkipReason,
)
from epochal.records.code.file_content import FileStamp, read_content
from epochal.records.code.file_selection import CandidateFile, SnapshotLimits, get_data_group
from epochal.records.code.ignore import IgnoreRules, is_rarely_code
from epochal.records.layout.os_errors import describe_os_error
from epochal.records.layout.run_folders import EPOCHAL_DIR
from epochal.records.secrets import is_secret_file
from epochal.text.formatting import format_bytes, format_count

if TYPE_CHECKING:
    from collections.abc import Sequence

_ENVIRONMENTS = {"pyvenv.cfg", "conda-meta"}
_RECORD_FILES = {"run.json", "status.json"}
_IGNORE_FILE = ".gitignore"
_MAX_IGNORE_BYTES = 1 << 16
_MIN_DATA_FILES = 20
"""A folder with this many files and no code is data."""

_SPECIAL_FILES: tuple[tuple[int, SkipReason], ...] = (
    (stat.S_IFIFO, "fifo"),
    (stat.S_IFSOCK, "socket"),
    (stat.S_IFCHR, "device"),
    (stat.S_IFBLK, "device"),
)


_Files: TypeAlias = "list[tuple[str, os.DirEntry[str]]]"
_Groups: TypeAlias = dict[str | None, _Files]
"""The files of one folder by their data group: empty for code, None if the config includes them."""


@final
class _QueuedFolder(NamedTuple):
    path: str
    depth: int
    is_wanted: bool
    """Whether the config includes its content, so that no limit applies."""

    @property
    def parent(self) -> str:
        """The parent folder."""
        return self.path.rpartition("/")[0]


@final
class ProjectScanner:
    """Scans a project breadth first.

    Args:
        root: The folder of the project.
        ignore: Lines as in ``.gitignore``, which outrank all others.
        limits: The limits of the scan.
        run_dir: The folder of the run, which may be inside the project.
    """

    def __init__(
        self,
        root: Path,
        *,
        ignore: Sequence[str] = (),
        limits: SnapshotLimits,
        run_dir: Path | None = None,
    ) -> None:
        self.root = root
        self.limits = limits
        # Links above the root may give one folder two paths; below it none is followed.
        self._real_root = os.path.realpath(root)
        self._run_dir = None if run_dir is None else os.path.realpath(run_dir)
        self.found: list[CandidateFile] = []
        self.others: list[SkippedEntry] = []
        self._given, self._files, self._restored = IgnoreRules(), IgnoreRules(), IgnoreRules()
        self._given.add(ignore)
        self._num_entries = 0
        self._queue = deque([_QueuedFolder("", 0, is_wanted=False)])
        self._data_queue: deque[_QueuedFolder] = deque()
        self._data_folders: set[str] = set()

    def scan(self) -> None:
        """Fill ``found`` and ``others``."""
        if _is_too_broad(self.root):
            self._skip(".", "many", "not a project, but a home, temporary or top folder")
            return
        while queue := self._queue or self._data_queue:
            folder = queue.popleft()
            if queue is self._queue and folder.parent in self._data_folders:
                self._data_queue.append(folder)  # scan code in deeper folders before data
            elif self._num_entries > self.limits.max_entries and not folder.is_wanted:
                self._skip(folder.path, "many", f"after {self.limits.max_entries} other names")
            else:
                self._scan_folder(folder)

    def _scan_folder(self, place: _QueuedFolder) -> None:
        folder = place.path
        try:
            with os.scandir(self.root / folder) as scan:
                most = None if place.is_wanted else self.limits.max_in_folder + 1
                entries = list(islice(scan, most))
        except OSError as error:
            self._skip(folder or ".", "unreadable", describe_os_error(error))
            return
        if not place.is_wanted:
            self._num_entries += len(entries)
        names = {entry.name for entry in entries}
        if folder and self._skip_special_folder(folder, names):
            return
        if len(entries) > self.limits.max_in_folder and not place.is_wanted:
            self._skip(folder or ".", "many", f"more than {self.limits.max_in_folder} names")
            if folder:
                return
        prefix = f"{folder}/" if folder else ""
        if not folder and RESTORED_FILE in names:
            self._restored.add(_read_lines(self.root / RESTORED_FILE))
        if _IGNORE_FILE in names:
            self._files.add(_read_lines(self.root / folder / _IGNORE_FILE), base=prefix)
        groups: _Groups = {}
        for entry in sorted(entries, key=lambda entry: entry.name):
            self._add_entry(entry, f"{prefix}{entry.name}", place, groups)
        for group, files in groups.items():
            self._add_files(group, files)
        if folder and all(groups) and sum(map(len, groups.values())) >= _MIN_DATA_FILES:
            self._data_folders |= {folder, place.parent} - {""}

    def _skip_special_folder(self, folder: str, names: set[str]) -> bool:
        """Skip a submodule, records or an environment of packages; returns whether it was one."""
        if ".git" in names:
            self._skip(folder, "submodule", _read_submodule_commit(self.root / folder / ".git"))
        elif EPOCHAL_DIR in names or names >= _RECORD_FILES:
            self._skip(folder, "records")
        elif names & _ENVIRONMENTS:
            self._skip(folder, "ignored", "an environment of packages")
        else:
            return False
        return True

    def _add_entry(
        self, entry: os.DirEntry[str], path: str, place: _QueuedFolder, groups: _Groups
    ) -> None:
        try:
            path.encode()
        except UnicodeEncodeError:
            self._skip(path.encode("utf-8", "backslashreplace").decode(), "odd name")
            return
        try:
            if entry.is_symlink():
                self._skip(path, "link", str(Path(entry.path).readlink()))
                return
            is_folder = entry.is_dir(follow_symlinks=False)
        except OSError as error:
            self._skip(path, "unreadable", describe_os_error(error))
            return
        is_included = self._find_rule(path, is_folder=is_folder)
        is_wanted = place.is_wanted or is_included is True
        if is_included is False:
            pass
        elif is_folder:
            self._enter(_QueuedFolder(path, place.depth + 1, is_wanted=is_wanted))
        else:
            group = None if is_wanted else get_data_group(path)
            groups.setdefault(group, []).append((path, entry))

    def _find_rule(self, path: str, *, is_folder: bool) -> bool | None:
        """False for what is skipped, True for what the config includes, None otherwise."""
        if not is_folder and is_secret_file(path):
            self._skip(path, "secret")
            return False
        is_ignored = self._given.find(path, is_folder=is_folder)
        if is_ignored is False:
            return True
        for rules in (self._files, self._restored):
            if is_ignored is None:
                is_ignored = rules.find(path, is_folder=is_folder)
        if is_ignored is None:
            is_ignored = is_rarely_code(path, is_folder=is_folder)
        if is_ignored:
            has_records = is_folder and self._has_records(path)
            self._skip(path, "records" if has_records else "ignored")
            return False
        return None

    def _has_records(self, folder: str) -> bool:
        is_above = f"{self._run_dir}/".startswith(f"{self._real_root}/{folder}/")
        return is_above or (self.root / folder / EPOCHAL_DIR).is_dir()

    def _enter(self, folder: _QueuedFolder) -> None:
        if f"{self._real_root}/{folder.path}" == self._run_dir:
            self._skip(folder.path, "records")
        elif folder.depth > self.limits.max_depth:
            self._skip(folder.path, "deep", f"more than {self.limits.max_depth} folders down")
        else:
            self._queue.append(folder)

    def _add_files(self, group: str | None, files: _Files) -> None:
        """Add the files of a group, unless there are too many."""
        if group and len(files) > self.limits.max_data_files:
            self._skip(group, "data", format_count(len(files), "file"))
            return
        for path, entry in files:
            try:
                self._add_file(path, group, entry.stat(follow_symlinks=False))
            except OSError as error:
                self._skip(path, "unreadable", describe_os_error(error))

    def _add_file(self, path: str, group: str | None, status: os.stat_result) -> None:
        kind = next((k for bits, k in _SPECIAL_FILES if stat.S_IFMT(status.st_mode) == bits), None)
        if kind is not None:
            self._skip(path, kind)
        elif status.st_size > self._max_bytes(group):
            self._skip(path, "large", format_bytes(status.st_size))
        else:
            mode = stat.S_IMODE(status.st_mode)
            stamp = FileStamp.of(status)
            self.found.append(CandidateFile(path, stamp, mode, group or "", group is None))

    def _max_bytes(self, group: str | None) -> int:
        return MAX_COPY_BYTES if group is None else self.limits.max_file_bytes

    def _skip(self, path: str, kind: SkipReason, text: str = "") -> None:
        self.others.append(SkippedEntry(path, kind, text))


def _is_too_broad(root: Path) -> bool:
    """Whether a folder is too general to be a project, so that only imports are copied."""
    places = [Path(root.anchor), Path(tempfile.gettempdir())]
    with suppress(RuntimeError):  # the user may have no home
        places.append(Path.home())
    return any(root == place for place in places)


def _read_lines(path: Path) -> list[str]:
    try:
        content = read_content(path, max_bytes=_MAX_IGNORE_BYTES)
    except OSError:  # a link, or not readable
        return []
    return [] if content is None else content.data.decode("utf-8", "replace").splitlines()


def _read_submodule_commit(git: Path) -> str:
    """The commit of a repository inside the project, read without git."""
    try:
        if git.is_file():
            git = git.parent / git.read_text("utf-8").partition("gitdir:")[2].strip()
        head = (git / "HEAD").read_text("utf-8").strip()
        reference = head.removeprefix("ref:").strip()
        return head if reference == head else (git / reference).read_text("utf-8").strip()
    except (OSError, ValueError):
        return ""
