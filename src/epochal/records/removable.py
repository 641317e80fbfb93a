"""Checks that a folder is a run before it is deleted."""

from __future__ import annotations

import os
from pathlib import Path

from epochal import durable
from epochal.records.layout.run_folders import parse_start_time

_FILES = (
    "README.md", "run.json", "status.json", "result.json", "lease.json", "heartbeat.json",
    "labels.json", "stop.json", "reserve", "metrics.bin", "series.jsonl", "events.jsonl",
    "system.jsonl", "points.csv", "points.jsonl", "predictions.jsonl",
)  # fmt: skip
_FOLDERS = (
    "cache", "checkpoints", "code", "config", "folds", "logs", "media", "mlflow", "outputs",
    "predict", "profile", "safetensors", "tensorboard", "test", "wandb", "watch",
)  # fmt: skip
_PROJECT_FILES = ("epochal.toml", "pyproject.toml", "setup.py")
_SHOWN = 3


def why_not_removable(folder: Path, root: Path, *, is_whole: bool = True) -> str:
    """Why a run below ``root`` must not be deleted, as "because it ..."; empty if it may be.

    Args:
        folder: The folder of the run.
        root: The folder of all runs.
        is_whole: Whether all of it is to be deleted, and not only its checkpoints.
    """
    try:
        place, whole = folder.resolve(strict=True), root.resolve(strict=True)
        named = os.path.normpath(whole / os.path.relpath(folder, root))
        if folder.is_symlink() or str(place) != named:
            return "is reached through a link"
        if place == whole or not place.is_relative_to(whole):
            return "is not inside the folder of the runs"
        if not _is_own(folder):
            return "belongs to another user"
        if not _is_record(folder):
            return (
                "is not certainly a run: run.json is missing or damaged, and there are other files"
            )
        return _why_kept_whole(folder, place) if is_whole else ""
    except OSError:
        return "cannot be read"


def find_other_files(folder: Path) -> list[str]:
    """The entries of a run folder that Epochal did not write."""
    return sorted(
        entry.name for entry in os.scandir(folder) if not _is_known(entry.name, entry.is_dir())
    )


def _why_kept_whole(folder: Path, place: Path) -> str:
    if any(inner.resolve().is_relative_to(place) for inner in (Path.cwd(), Path.home())):
        return "holds the current folder, or your home"
    if any((folder / name).exists() for name in _PROJECT_FILES):
        return "holds a project"
    for inside, folders, files in os.walk(folder):
        if ".git" in folders or ".git" in files:
            return f"holds a git checkout: {os.path.relpath(inside, folder)}"
    others = find_other_files(folder)
    if others and not _has_id(folder):  # the user chose the folder, and may have other files in it
        more = " and more" if len(others) > _SHOWN else ""
        return f"holds files that Epochal did not write: {', '.join(others[:_SHOWN])}{more}"
    return ""


def _is_record(folder: Path) -> bool:
    """Whether Epochal made this folder, or its record is in it."""
    path = folder / "run.json"
    facts = {} if path.is_symlink() else durable.find_object(path)
    if isinstance(facts.get("format"), int) and isinstance(facts.get("id"), str):
        return True
    return _has_id(folder) and not find_other_files(folder)  # it was killed at its start


def _has_id(folder: Path) -> bool:
    """Whether the name of the folder is the id of a run, which only Epochal gives."""
    return bool(parse_start_time(folder.name))


def _is_own(folder: Path) -> bool:
    user = os.geteuid() if hasattr(os, "geteuid") else 0
    return user in (0, folder.lstat().st_uid)


def _is_known(name: str, is_folder: bool) -> bool:
    is_temporary = name.startswith(".") and (name.endswith(".tmp") or name.startswith(".removing-"))
    return is_temporary or name in (_FOLDERS if is_folder else _FILES)
