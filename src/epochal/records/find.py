"""Finds one run by its name, by a part of it, or as the last one."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from epochal.errors import RecordError, suggest
from epochal.records.folder.record import find_runs
from epochal.records.index import Index
from epochal.records.index.database import INDEX_FILE
from epochal.records.layout.epochal_dir import EPOCHAL_DIR
from epochal.records.layout.run_folders import parse_start_time

if TYPE_CHECKING:
    from pathlib import Path

_MAX_CANDIDATES = 8


class _FoundRun(NamedTuple):
    started: str
    id: str
    path: Path


def resolve_run(name: str, root: Path) -> Path:
    """The folder of the run below ``root`` that ``name`` means.

    Raises:
        RecordError: There is none, or there are several.
    """
    runs = _indexed(root) or [_FoundRun(one.started, one.id, one.path) for one in find_runs(root)]
    if not runs:
        raise RecordError(
            f"{root}: no runs here\n  start one with `epochal run CONFIG`, or name another folder"
        )
    if name == "last":
        return runs[-1].path
    matches = [run for run in runs if run.id == name]
    matches = matches or [run for run in runs if name and name in run.id]
    if len(matches) == 1:
        return matches[0].path
    if not matches:
        known = [run.id for run in runs]
        hint = suggest(name, known) or f"the last of {len(runs)} is {known[-1]!r}"
        raise RecordError(f"{name}: no such run in {root}\n  {hint}")
    shown = [f"  {run.path}" for run in matches[-_MAX_CANDIDATES:]]
    more = [f"  and {len(matches) - len(shown)} older ones"] if len(matches) > len(shown) else []
    raise RecordError("\n".join([f"{name}: fits {len(matches)} runs in {root}", *shown, *more]))


def _indexed(root: Path) -> list[_FoundRun]:
    """All runs by an index that is there and up to date, oldest first; else nothing."""
    if not (root / EPOCHAL_DIR / INDEX_FILE).is_file():
        return []
    with Index.open(root) as index:
        if not index.is_built or not index.refresh().is_current:
            return []
        rows = index.fetch("SELECT started, run, path FROM runs")
    if any("\\udc" in path for _, _, path in rows):  # escapes of a name that is no text
        return []
    return sorted(
        _FoundRun(started or parse_start_time(run), run, root / path) for started, run, path in rows
    )
