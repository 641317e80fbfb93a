"""Selects the files of a project to copy: code, and small data."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, final

from epochal.records.code.code_manifest import SkippedEntry, SkipReason
from epochal.records.code.file_kind import get_file_kind
from epochal.text.formatting import format_bytes, format_count

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from epochal.records.code.file_content import FileStamp

_DATA_FACTOR = 4


@final
@dataclass(frozen=True, kw_only=True, slots=True)
class SnapshotLimits:
    """Limits on what is scanned and what is copied."""

    max_file_bytes: int = 1 << 20
    max_bytes: int = 1 << 26
    """All files together."""

    max_files: int = 5_000
    max_data_files: int = 500
    """Files other than code."""

    max_entries: int = 20_000
    """Scanned names in all folders together."""

    max_in_folder: int = 2_000
    """A folder with more names is data."""

    max_depth: int = 24

    @property
    def max_data_bytes(self) -> int:
        """Total size of files other than code."""
        return _DATA_FACTOR * self.max_file_bytes


@final
@dataclass(frozen=True, slots=True)
class CandidateFile:
    """A file that may be copied."""

    path: str
    stamp: FileStamp
    mode: int
    group: str = ""
    """The pattern of similar files in its folder; empty for code."""

    is_wanted: bool = False
    """Whether the config includes it, so that no limit applies."""


def get_data_group(path: str) -> str:
    """The pattern of similar files in a folder, such as ``a/*.json``; empty for code."""
    if get_file_kind(path) in ("code", "script"):
        return ""
    folder, slash, name = path.rpartition("/")
    _, dot, suffix = name.rpartition(".")
    # A number is a counter, not a suffix.
    return f"{folder}{slash}*" + (f".{suffix}" if dot and not suffix.isdecimal() else "")


def select_files(
    found: Sequence[CandidateFile], limits: SnapshotLimits
) -> tuple[list[CandidateFile], list[SkippedEntry]]:
    """The files to copy, and an entry for each skipped file or group.

    Code comes first: Python files and upper levels. A group of data is copied completely or not
    at all; configs and small groups come first.
    """
    chosen: list[CandidateFile] = []
    others: list[SkippedEntry] = []
    size = 0
    code = (file for file in found if not (file.group or file.is_wanted))
    for file in sorted(code, key=lambda f: (not f.path.endswith(".py"), f.path.count("/"))):
        if len(chosen) < limits.max_files and size + file.stamp.size <= limits.max_bytes:
            chosen.append(file)
            size += file.stamp.size
        else:
            others.append(SkippedEntry(file.path, "many", "beyond the limit of all files"))
    files_left = min(limits.max_data_files, limits.max_files - len(chosen))
    bytes_left = min(limits.max_data_bytes, limits.max_bytes - size)
    for group in sorted(_groups(found), key=lambda group: (not group.is_config, group.size)):
        if len(group.files) <= files_left and group.size <= bytes_left:
            chosen += group.files
            files_left, bytes_left = files_left - len(group.files), bytes_left - group.size
        else:
            others.append(group.to_skipped_entry(limits))
    return [*chosen, *(file for file in found if file.is_wanted)], others


@final
@dataclass(frozen=True, slots=True)
class _DataGroup:
    name: str
    files: list[CandidateFile]
    size: int

    @property
    def is_config(self) -> bool:
        return get_file_kind(self.files[0].path) == "config"

    def to_skipped_entry(self, limits: SnapshotLimits) -> SkippedEntry:
        count, size = len(self.files), format_bytes(self.size)
        is_data = count > limits.max_data_files or self.size > limits.max_data_bytes
        kind: SkipReason = "data" if is_data else "many"
        if count == 1:
            return SkippedEntry(self.files[0].path, kind, size)
        return SkippedEntry(self.name, kind, f"{format_count(count, 'file')}, {size}")


def _groups(found: Iterable[CandidateFile]) -> list[_DataGroup]:
    members: dict[str, list[CandidateFile]] = {}
    for file in found:
        if file.group:
            members.setdefault(file.group, []).append(file)
    return [
        _DataGroup(name, files, sum(file.stamp.size for file in files))
        for name, files in members.items()
    ]
