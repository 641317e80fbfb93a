"""Restores the code and the config of a run into a folder."""

from __future__ import annotations

import os
import posixpath
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, final

from epochal.errors import ConfigError, Problem, RecordError
from epochal.records.code.code_manifest import (
    RESTORED_FILE,
    CodeFile,
    CodeManifest,
    SkippedEntry,
    find_code_dir,
    read_manifest,
    read_snapshot_file,
)
from epochal.records.code.file_content import read_content
from epochal.records.code.framework import digest_package, get_package_dir, unpack_framework
from epochal.records.code.unpack_limits import find_unsafe_paths, require_room, why_unsafe
from epochal.records.code.verify import describe_damage, find_code_damage
from epochal.records.folder.reader import find_expanded_config
from epochal.records.secrets import REDACTED

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

FRAMEWORK_DIR = ".epochal-code"
"""The folder for another version of Epochal; hidden, so that snapshots skip it."""

_REDACTED = "secrets removed"
_MAX_CONFIG_BYTES = 1 << 26


@final
@dataclass(frozen=True, kw_only=True)
class RestoreResult:
    """What was restored, and what was not."""

    dir: Path
    manifest: CodeManifest
    config: Path | None
    """The expanded config; None if it is lost."""

    framework_dir: Path | None = None
    """The run's version of Epochal, if it differs from the running one."""

    lost: tuple[str, ...] = ()
    """Files in the manifest that are damaged or missing, or cannot be written."""

    others: tuple[SkippedEntry, ...] = ()
    """Entries that the record does not have."""

    ignored: tuple[str, ...] = ()
    """Entries that the record does not have because of ignore rules, without generated files."""

    altered: Mapping[str, str] = field(default_factory=dict)
    """Files that are not as the run used them, and why."""


def restore_code(
    run_dir: Path, target: Path, *, attempt: int = 0, is_partial: bool = False
) -> RestoreResult:
    """Restore the code and the config of a run into ``target``, a new or empty folder.

    Args:
        run_dir: The folder of the run.
        target: The folder to write.
        attempt: The attempt, of a run that was resumed with other code.
        is_partial: Whether to leave out files that are not as recorded, instead of refusing.

    Raises:
        RecordError: The run has no copy of its code, or one that is not as recorded.
        ConfigError: ``target`` is not empty.
        OSError: ``target`` cannot be written.
    """
    manifest = read_manifest(run_dir, attempt)
    if manifest is None:
        raise RecordError(
            f"{run_dir}: has no copy of its code, or one whose list is damaged\n"
            "  runs with record.code=false keep none; run.json may name a git commit"
        )
    _require_empty(target)
    require_room(manifest, target)
    folder = find_code_dir(run_dir, attempt)
    unsafe = find_unsafe_paths([file.path for file in manifest.files])
    if not is_partial and (damage := unsafe or find_code_damage(run_dir, attempt)):
        raise RecordError(
            f"{folder}: {describe_damage(damage)}\n"
            "  nothing was restored; add --partial to restore the other files"
        )
    target.mkdir(parents=True, exist_ok=True)
    lost = [
        path
        for path, file in manifest.by_path.items()
        if path in unsafe or not _restore_file(folder, target, file)
    ]
    linked = {other.path for other in manifest.others if _restore_link(target, other)}
    linked -= _remove_escaping_links(target, linked)
    others = tuple(
        other
        for other in manifest.others
        if other.kind not in ("ignored", "records") and other.path not in linked
    )
    config = _restore_config(run_dir, target)
    added = () if config is None else (config.name,)
    altered = {file.path: why for file in manifest.files if (why := _why_altered(file))}
    if config is not None and REDACTED in config.read_text("utf-8", "replace"):
        altered[config.name] = _REDACTED
    return RestoreResult(
        dir=target,
        manifest=manifest,
        config=config,
        framework_dir=_restore_framework(folder, target, manifest, lost),
        lost=tuple(lost),
        altered={path: why for path, why in altered.items() if path not in lost},
        others=others,
        ignored=tuple(
            other.path
            for other in manifest.others
            if other.kind == "ignored" and not _is_generated(other) and other.path not in added
        ),
    )


def _why_altered(file: CodeFile) -> str:
    return _REDACTED if file.is_redacted else file.note


def _is_generated(other: SkippedEntry) -> bool:
    """Whether an entry is hidden, a cache, or made by an installer."""
    name = other.path.rpartition("/")[2]
    is_installed = bool(other.text) or name.endswith(".egg-info")  # the text says: an environment
    return is_installed or name.startswith(".") or name == "__pycache__" or name.endswith(".pyc")


def _require_empty(target: Path) -> None:
    if target.exists() and (not target.is_dir() or any(target.iterdir())):
        hint = "name a new folder, or empty this one first"
        raise ConfigError(Problem(str(target), "exists already and is not empty", hint=hint))


def _restore_file(folder: Path, target: Path, file: CodeFile) -> bool:
    data = read_snapshot_file(folder, file)
    place = target / file.path
    if data is None:
        return False
    try:
        place.parent.mkdir(parents=True, exist_ok=True)
        with place.open("xb") as out:  # "x": if the file system ignores case, the first file stays
            out.write(data)
        place.chmod(0o644 | (file.mode & 0o111))
    except OSError:
        return False
    return True


def _restore_link(target: Path, other: SkippedEntry) -> bool:
    """Restore a link whose target is inside the folder."""
    if other.kind != "link" or os.path.isabs(other.text):  # noqa: PTH117 - a text, no path yet
        return False
    if why_unsafe(other.path):
        return False
    inner = posixpath.normpath(posixpath.join(posixpath.dirname(other.path), other.text))
    if inner == ".." or inner.startswith("../"):
        return False
    place = target / other.path
    with suppress(OSError, ValueError, RuntimeError):
        if _is_inside(place.parent, target):  # a parent may be a link
            place.parent.mkdir(parents=True, exist_ok=True)
            place.symlink_to(other.text)
            return True
    return False


def _remove_escaping_links(target: Path, paths: Iterable[str]) -> set[str]:
    """Remove links that lead out of the folder through other links; returns their paths."""
    out = {path for path in paths if not _is_inside(target / path, target)}
    for path in out:
        with suppress(OSError):
            (target / path).unlink()
    return out


def _is_inside(place: Path, folder: Path) -> bool:
    try:
        return place.resolve().is_relative_to(folder.resolve())
    except (OSError, RuntimeError):  # a circular link
        return True


def _restore_config(run_dir: Path, target: Path) -> Path | None:
    source = find_expanded_config(run_dir)
    if source is None or why_unsafe(source.name):
        return None
    content = read_content(source, max_bytes=_MAX_CONFIG_BYTES)
    if content is None:
        return None
    place = target / f"restored{source.suffix}"
    if os.path.lexists(place):  # the project itself was restored from a run
        place = target / f"restored-{run_dir.absolute().name}{source.suffix}"
    with place.open("xb") as out:
        out.write(content.data)
    # Otherwise the next run would copy the config as part of the project.
    with suppress(OSError), (target / RESTORED_FILE).open("x", encoding="utf-8") as out:
        out.write(f"/{place.name}\n")
    return place


def _restore_framework(
    folder: Path, target: Path, manifest: CodeManifest, lost: list[str]
) -> Path | None:
    own = manifest.framework
    if own is None or not own.digest or own.digest == digest_package(get_package_dir()):
        return None
    place = target / FRAMEWORK_DIR
    try:
        place.mkdir()
        unpack_framework(folder / own.archive, place, own.digest)
    except (OSError, ValueError):
        lost.append(own.archive or "epochal")
        return None
    return place
