"""Looks through a project's folder for files to keep, and follows no link."""

from __future__ import annotations

import os
import stat
import tempfile
from collections import deque
from contextlib import suppress
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, TypeAlias, final

from epochal.records.code.code_manifest import RESTORED_FILE, SkippedEntry, SkipReason
from epochal.records.code.file_content import FileStamp, read_content
from epochal.records.code.file_selection import CandidateFile, SnapshotLimits, get_data_group
from epochal.records.code.ignore import IgnoreRules, is_rarely_code
from epochal.records.layout.epochal_dir import EPOCHAL_DIR
from epochal.records.secrets import is_secret_file
from epochal.text.formatting import format_count

if TYPE_CHECKING:
    from collections.abc import Sequence

_ENVIRONMENTS = {"pyvenv.cfg", "conda-meta"}
_RECORD_FILES = {"run.json", "status.json"}
_IGNORE_FILE = ".gitignore"
_MAX_IGNORE_BYTES = 1 << 16
_MANY = 20
"""A folder with so many files, none of them code, holds data."""

_KINDS: tuple[tuple[int, SkipReason], ...] = (
    (stat.S_IFIFO, "fifo"),
    (stat.S_IFSOCK, "socket"),
    (stat.S_IFCHR, "device"),
    (stat.S_IFBLK, "device"),
)


_Files: TypeAlias = "list[tuple[str, os.DirEntry[str]]]"
_Groups: TypeAlias = dict[str, _Files]
"""Files of one folder by what is said of their kind; empty for code."""


@final
class _QueuedFolder(NamedTuple):
    path: str
    depth: int
    is_wanted: bool
    """Whether the config asks for what is in it."""

    @property
    def parent(self) -> str:
        """The folder that it lies in."""
        return self.path.rpartition("/")[0]


@final
class ProjectScanner:
    """One look through a project's folder, the upper levels first.

    Args:
        root: The project's folder.
        ignore: Lines as in ``.gitignore``, which outrank all others.
        limits: How far it goes.
        run_dir: The folder of the run itself, which may lie in the project.
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
        # Links above may lead to one place under two names; below the root none is followed.
        self._real_root = os.path.realpath(root)
        self._run_dir = None if run_dir is None else os.path.realpath(run_dir)
        self.found: list[CandidateFile] = []
        self.others: list[SkippedEntry] = []
        self._given, self._files, self._restored = IgnoreRules(), IgnoreRules(), IgnoreRules()
        self._given.add(ignore)
        self._num_entries = 0
        self._waiting = deque([_QueuedFolder("", 0, is_wanted=False)])
        self._late: deque[_QueuedFolder] = deque()
        self._with_data: set[str] = set()

    def scan(self) -> None:
        """Fill ``found`` and ``others``."""
        if _is_too_broad(self.root):
            self._skip(".", "many", "no project but a home, temporary or top folder")
            return
        while queue := self._waiting or self._late:
            folder = queue.popleft()
            if queue is self._waiting and folder.parent in self._with_data:
                self._late.append(folder)  # data must not keep us from code that lies deeper
            elif self._num_entries > self.limits.max_entries:
                self._skip(folder.path, "many", f"after {self.limits.max_entries} other names")
            else:
                self._scan_folder(folder)

    def _scan_folder(self, place: _QueuedFolder) -> None:
        folder = place.path
        try:
            with os.scandir(self.root / folder) as scan:
                entries = list(islice(scan, self.limits.max_in_folder + 1))
        except OSError as error:
            self._skip(folder or ".", "unreadable", _reason(error))
            return
        self._num_entries += len(entries)
        names = {entry.name for entry in entries}
        if folder and self._is_no_code(folder, names):
            return
        if len(entries) > self.limits.max_in_folder:
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
            self._take(entry, f"{prefix}{entry.name}", place, groups)
        for group, files in groups.items():
            self._take_files(group, files)
        if folder and "" not in groups and sum(map(len, groups.values())) >= _MANY:
            self._with_data |= {folder, place.parent} - {""}

    def _is_no_code(self, folder: str, names: set[str]) -> bool:
        """Whether a folder is another thing as a whole, which its names tell."""
        if ".git" in names:
            self._skip(folder, "submodule", _read_submodule_commit(self.root / folder / ".git"))
        elif EPOCHAL_DIR in names or names >= _RECORD_FILES:
            self._skip(folder, "records")
        elif names & _ENVIRONMENTS:
            self._skip(folder, "ignored", "an environment of packages")
        else:
            return False
        return True

    def _take(
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
            self._skip(path, "unreadable", _reason(error))
            return
        is_kept = self._find_verdict(path, is_folder=is_folder)
        is_wanted = place.is_wanted or is_kept is True
        if is_kept is False:
            pass
        elif is_folder:
            self._enter(_QueuedFolder(path, place.depth + 1, is_wanted=is_wanted))
        else:
            groups.setdefault("" if is_wanted else get_data_group(path), []).append((path, entry))

    def _find_verdict(self, path: str, *, is_folder: bool) -> bool | None:
        """False for what is left out, True for what the config wants to be kept."""
        if not is_folder and is_secret_file(path):
            self._skip(path, "secret")
            return False
        is_left = self._given.find(path, is_folder=is_folder)
        if is_left is False:
            return True
        for rules in (self._files, self._restored):
            if is_left is None:
                is_left = rules.find(path, is_folder=is_folder)
        if is_left is None:
            is_left = is_rarely_code(path, is_folder=is_folder)
        if is_left:
            self._skip(path, "ignored")
            return False
        return None

    def _enter(self, folder: _QueuedFolder) -> None:
        if f"{self._real_root}/{folder.path}" == self._run_dir:
            self._skip(folder.path, "records")
        elif folder.depth > self.limits.max_depth:
            self._skip(folder.path, "deep", f"more than {self.limits.max_depth} folders down")
        else:
            self._waiting.append(folder)

    def _take_files(self, group: str, files: _Files) -> None:
        """Take in files, unless they are so many that even their sizes do not matter."""
        if group and len(files) > self.limits.max_data_files:
            self._skip(group, "data", format_count(len(files), "file"))
            return
        for path, entry in files:
            try:
                self._take_file(path, group, entry.stat(follow_symlinks=False))
            except OSError as error:
                self._skip(path, "unreadable", _reason(error))

    def _take_file(self, path: str, group: str, status: os.stat_result) -> None:
        kind = next((k for bits, k in _KINDS if stat.S_IFMT(status.st_mode) == bits), None)
        if kind is not None:
            self._skip(path, kind)
        elif status.st_size > self.limits.max_file_bytes:
            self._skip(path, "large", f"{status.st_size} bytes")
        else:
            self.found.append(
                CandidateFile(path, FileStamp.of(status), stat.S_IMODE(status.st_mode), group)
            )

    def _skip(self, path: str, kind: SkipReason, text: str = "") -> None:
        self.others.append(SkippedEntry(path, kind, text))


def _is_too_broad(root: Path) -> bool:
    """Whether a folder holds all kinds of things, so that only what is imported is taken."""
    places = [Path(root.anchor), Path(tempfile.gettempdir())]
    with suppress(RuntimeError):  # nobody may know whose process this is
        places.append(Path.home())
    return any(root == place for place in places)


def _read_lines(path: Path) -> list[str]:
    try:
        content = read_content(path, max_bytes=_MAX_IGNORE_BYTES)
    except OSError:  # a link, or not ours to read
        return []
    return [] if content is None else content.data.decode("utf-8", "replace").splitlines()


def _read_submodule_commit(git: Path) -> str:
    """The commit that a repository inside of the project is at, if plain files tell."""
    try:
        if git.is_file():
            git = git.parent / git.read_text("utf-8").partition("gitdir:")[2].strip()
        head = (git / "HEAD").read_text("utf-8").strip()
        reference = head.removeprefix("ref:").strip()
        return head if reference == head else (git / reference).read_text("utf-8").strip()
    except (OSError, ValueError):
        return ""


def _reason(error: OSError) -> str:
    return (error.strerror or str(error)).lower()
