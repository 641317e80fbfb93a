"""Checks paths, number and size of the files in a run before its code is restored."""

from __future__ import annotations

import re
import shutil
from typing import TYPE_CHECKING

from epochal.errors import RecordError
from epochal.records.code.code_manifest import MAX_COPY_BYTES
from epochal.text.formatting import format_bytes

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from epochal.records.code.code_manifest import CodeManifest

_MAX_ENTRIES = 50_000
_MAX_BYTES = 4 * MAX_COPY_BYTES
_MAX_DEPTH = 64
_CONTROL = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029]")
_DRIVE = re.compile("[A-Za-z]:")


def require_room(manifest: CodeManifest, target: Path) -> None:
    """Refuse a manifest with too many files or bytes for a project or for the free disk space."""
    entries, size = manifest.num_entries, manifest.num_bytes
    parent = next(folder for folder in (target, *target.absolute().parents) if folder.exists())
    free = shutil.disk_usage(parent).free
    problem = ""
    if entries > _MAX_ENTRIES:
        problem = f"lists {entries} entries, more than {_MAX_ENTRIES}"
    elif size > _MAX_BYTES:
        problem = f"lists {format_bytes(size)}, more than {format_bytes(_MAX_BYTES)}"
    elif size > free:
        problem = f"needs {format_bytes(size)}, and {parent} has {format_bytes(free)} free"
    if problem:
        hint = "nothing was restored; copy single files from the folder `code` of the run"
        raise RecordError(f"{target}: the copy of the code {problem}\n  {hint}")


def find_unsafe_paths(paths: Sequence[str]) -> dict[str, str]:
    """The paths that must not be written below a folder, each with the reason."""
    found = {path: reason for path in paths if (reason := why_unsafe(path))}
    folders = {path[:end] for path in paths for end in _separators(path)}
    seen = set[str]()
    for path in paths:
        if path in folders:
            found.setdefault(path, "is also a folder")
        if path in seen:
            found.setdefault(path, "is listed twice")
        seen.add(path)
    return found


def why_unsafe(path: str) -> str:
    """Why a relative path must not be written; empty if it is safe."""
    parts = path.split("/")
    if any(part in ("", ".", "..") for part in parts):
        return "not a path below the folder"
    if "\\" in path or _DRIVE.match(path):
        return "a Windows path"
    if _CONTROL.search(path):
        return "control characters in its name"
    if len(parts) > _MAX_DEPTH:
        return "too deep"
    if any(part.casefold().rstrip(". ") == ".git" for part in parts):
        return "would be executed by git"
    return ""


def _separators(path: str) -> list[int]:
    return [place for place, letter in enumerate(path) if letter == "/"]
