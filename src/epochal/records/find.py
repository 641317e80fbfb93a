"""Finds runs below a folder, and reads one by its path, id, tag, or as ``last`` or ``last~1``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from epochal.errors import RecordError, suggest
from epochal.records.folder.reader import read_folder, tag_of
from epochal.records.layout.run_folders import (
    EPOCHAL_DIR,
    INDEX_FILE,
    find_run_folders,
    is_run_folder,
    parse_start_time,
)
from epochal.records.layout.run_status import EVALUATIONS
from epochal.registry.project_file import get_runs_dir
from epochal.text.formatting import format_count

if TYPE_CHECKING:
    from collections.abc import Callable

    from epochal.records.folder.reader import RunRecord, RunSummary

LAST = "last"
_MAX_CANDIDATES = 8


class _FoundRun(NamedTuple):
    started: str
    id: str
    path: Path
    tag: str
    runner: str


def find_runs(root: Path) -> list[RunSummary]:
    """Every run below ``root``, oldest first, damaged ones included.

    ``root`` may be the folder of all runs, of a project, of a tag, or of one run.
    """
    runs = [read_folder(path).summary for path in find_run_folders(root)]
    return sorted(runs, key=lambda run: (run.started or parse_start_time(run.id), run.id))


def read_run(path_or_id: Path | str, root: Path | None = None) -> RunRecord:
    """The record of one run.

    Args:
        path_or_id: A folder or a name: the id, a tag for its newest run, a part of an id or tag
            that only one run has, or ``last`` for the newest training. ``last~1`` and ``TAG~1``
            are the ones before.
        root: The folder in which names are looked up; by default that of the project.
    """
    path = Path(path_or_id)
    if is_run_folder(path):
        return read_folder(path)
    return read_folder(resolve_run(str(path_or_id), get_runs_dir(root)))


def find_record(folder: Path | None) -> RunRecord | None:
    """The record in a folder; None if there is none, or no folder."""
    if folder is None:
        return None
    try:
        return read_run(folder)
    except RecordError:  # for example, its process has just made the folder
        return None


def resolve_run(name: str, root: Path, *, is_wanted: Callable[[Path], bool] | None = None) -> Path:
    """The folder of the run below ``root`` that ``name`` means; RecordError for none or several.

    ``last`` and tags mean trainings, and runs of other kinds only if there are no trainings; with
    ``is_wanted``, those for which it is true, if there are any.
    """
    runs = _find_in_index(root) or sorted(map(_read_found, find_run_folders(root)))
    if not runs:
        raise RecordError(
            f"{root}: no runs here\n  start one with `epochal run CONFIG`, or name another folder"
        )
    matches = [run for run in runs if run.id == name]
    base, back = _split_back(name)
    if not matches and (named := [run for run in runs if base in (LAST, run.tag)]):
        trainings = [run for run in named if run.runner not in EVALUATIONS] or named
        count_all = len(trainings)
        if is_wanted is not None:
            trainings = [run for run in trainings if is_wanted(run.path)] or trainings
        if back < len(trainings):
            return trainings[-1 - back].path
        whose = "" if base == LAST else f" of {base!r}"
        whose += " that this command can use" if len(trainings) < count_all else ""
        count = format_count(len(trainings), "run")
        raise RecordError(f"{name}: only {count}{whose} in {root}\n  `epochal runs` lists them")
    matches = matches or [run for run in runs if name and name in run.id]
    matches = matches or [run for run in runs if name and name in run.tag]
    if len(matches) == 1:
        return matches[0].path
    if not matches:
        known = dict.fromkeys([*(run.id for run in runs), *(run.tag for run in runs)])
        hint = suggest(name, known) or f"the last of {len(runs)} is {runs[-1].id!r}"
        raise RecordError(f"{name}: no such run in {root}\n  {hint}")
    shown = [f"  {run.path}" for run in matches[-_MAX_CANDIDATES:]]
    more = [f"  and {len(matches) - len(shown)} older ones"] if len(matches) > len(shown) else []
    raise RecordError("\n".join([f"{name}: matches {len(matches)} runs in {root}", *shown, *more]))


def _split_back(name: str) -> tuple[str, int]:
    """``last~2`` as a name and how many runs before it."""
    base, mark, back = name.rpartition("~")
    return (base, int(back)) if mark and back.isdecimal() else (name, 0)


def _read_found(path: Path) -> _FoundRun:
    record = read_folder(path)
    run = record.summary
    return _FoundRun(
        run.started or parse_start_time(run.id), run.id, path, tag_of(record), run.runner
    )


def _find_in_index(root: Path) -> list[_FoundRun]:
    """All runs, oldest first, from an index that exists and is up to date; otherwise none."""
    if not (root / EPOCHAL_DIR / INDEX_FILE).is_file():
        return []
    from epochal.records.index import Index  # imports sqlite3, which a path to a run does not need

    with Index.open(root) as index:
        if not index.is_built or not index.refresh().is_current:
            return []
        rows = index.fetch("SELECT started, run, path, tag, runner FROM runs")
    if any("\\udc" in path for _, _, path, *_ in rows):  # escaped bytes that are not valid UTF-8
        return []
    return sorted(
        _FoundRun(started or parse_start_time(run), run, root / path, *others)
        for started, run, path, *others in rows
    )
