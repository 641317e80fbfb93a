"""Compares the copy of a run's code with its manifest."""

from __future__ import annotations

import os
from itertools import islice
from typing import TYPE_CHECKING

from epochal.records.code.code_manifest import (
    ASIDE_DIR,
    CODE_MANIFEST_FILE,
    PROJECT_DIR,
    find_code_dir,
    read_code_digest,
    read_manifest,
    read_snapshot_file,
)
from epochal.text.formatting import format_count

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from epochal.records.code.code_manifest import CodeManifest

_SHOWN = 5
_MAX_ADDED = 1_000


def find_code_damage(run_dir: Path, attempt: int = 0) -> dict[str, str]:
    """What differs from the manifest: each path below ``code`` with what happened to it.

    Empty for a run without a copy of its code.
    """
    folder = find_code_dir(run_dir, attempt)
    if not os.path.lexists(folder):
        return {}
    manifest = read_manifest(run_dir, attempt)
    if manifest is None:
        is_there = os.path.lexists(folder / CODE_MANIFEST_FILE)
        return {CODE_MANIFEST_FILE: "damaged" if is_there else "missing"}
    found = {}
    if manifest.digest != read_code_digest(run_dir, attempt):
        found[CODE_MANIFEST_FILE] = "changed"
    for file in manifest.files:
        if read_snapshot_file(folder, file) is None:
            is_there = os.path.lexists(folder / file.place)
            found[file.place] = "changed" if is_there else "missing"
    return found | dict.fromkeys(islice(_iter_added(folder, manifest), _MAX_ADDED), "added")


def describe_damage(damage: Mapping[str, str]) -> str:
    """One line such as ``2 files are not as recorded: a.py (changed), b.py (missing)``."""
    shown = [f"{path} ({what})" for path, what in damage.items()][:_SHOWN]
    more = f" and {len(damage) - _SHOWN} more" if len(damage) > _SHOWN else ""
    verb = "is" if len(damage) == 1 else "are"
    count = format_count(len(damage), "file")
    return f"{count} {verb} not as recorded: {', '.join(shown)}{more}"


def _iter_added(folder: Path, manifest: CodeManifest) -> Iterator[str]:
    """Copied files and links below ``code`` that the manifest does not list."""
    known = {file.place for file in manifest.files}
    for top in (PROJECT_DIR, ASIDE_DIR):
        if (folder / top).is_symlink():
            yield top
            continue
        for place, folders, files in os.walk(folder / top):
            inner = os.path.relpath(place, folder).replace(os.sep, "/")
            links = [name for name in folders if os.path.islink(f"{place}/{name}")]  # noqa: PTH114
            for name in (*links, *files):
                # A killed process may leave temporary files.
                is_temporary = name.startswith(".") and name.endswith(".tmp")
                if f"{inner}/{name}" not in known and not is_temporary:
                    yield f"{inner}/{name}"
