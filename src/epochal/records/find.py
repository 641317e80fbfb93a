"""Finds runs below a folder, and reads one by its path, its id, a part of its id, or ``last``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from epochal.errors import RecordError, suggest
from epochal.records.folder.reader import read_folder
from epochal.records.layout.run_folders import (
    EPOCHAL_DIR,
    INDEX_FILE,
    find_run_folders,
    is_run_folder,
    parse_start_time,
)

if TYPE_CHECKING:
    from epochal.records.folder.reader import RunRecord, RunSummary

_MAX_CANDIDATES = 8


class _FoundRun(NamedTuple):
    started: str
    id: str
    path: Path


def find_runs(root: Path) -> list[RunSummary]:
    """Every run below ``root``, oldest first, damaged ones included.

    ``root`` may be the folder of all runs, of a project, of a tag, or of one run.
    """
    runs = [read_folder(path).summary for path in find_run_folders(root)]
    return sorted(runs, key=lambda run: (run.started or parse_start_time(run.id), run.id))


def read_run(path_or_id: Path | str, root: Path = Path("runs")) -> RunRecord:
    """The record of one run.

    Args:
        path_or_id: A folder, the id, a part of the id that only one run has,
            or ``last`` for the run that started last.
        root: The folder in which ids are looked up.
    """
    path = Path(path_or_id)
    return read_folder(path if is_run_folder(path) else resolve_run(str(path_or_id), root))


def resolve_run(name: str, root: Path) -> Path:
    """The folder of the run below ``root`` that ``name`` means; RecordError for none or several."""
    runs = _find_in_index(root)
    runs = runs or [_FoundRun(one.started, one.id, one.path) for one in find_runs(root)]
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


def _find_in_index(root: Path) -> list[_FoundRun]:
    """All runs, oldest first, from an index that exists and is up to date; otherwise none."""
    if not (root / EPOCHAL_DIR / INDEX_FILE).is_file():
        return []
    from epochal.records.index import Index  # imports sqlite3, which a path to a run does not need

    with Index.open(root) as index:
        if not index.is_built or not index.refresh().is_current:
            return []
        rows = index.fetch("SELECT started, run, path FROM runs")
    if any("\\udc" in path for _, _, path in rows):  # escaped bytes that are not valid UTF-8
        return []
    return sorted(
        _FoundRun(started or parse_start_time(run), run, root / path) for started, run, path in rows
    )
