"""Finds the children and replicates of a run in the index."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, final

from epochal.records.folder.writer import COMPLETED_STATUSES
from epochal.records.index.replicates import latest_per_seed, replicate_key

if TYPE_CHECKING:
    from collections.abc import Callable

    from epochal.records.folder.record import RunRecord

_COLUMNS = "path, run, status, parent_kind, seed, best"


@final
@dataclass(frozen=True, slots=True)
class RelatedRun:
    """The facts about another run for one line."""

    path: str
    """Its folder, relative to the folder of all runs."""

    run: str
    status: str
    kind: str
    """Its relation to its parent; empty without one."""

    seed: int | None
    best: float | None


@final
@dataclass(frozen=True, slots=True)
class RelatedRuns:
    """The children and replicates of one run."""

    children: tuple[RelatedRun, ...] = ()
    """The runs whose parent it is."""

    replicates: tuple[RelatedRun, ...] = ()
    """Completed replicates, one per seed, including the run itself; empty if it is the only one."""


def find_related_runs(
    record: RunRecord, root: Path, progress: Callable[[str], None]
) -> RelatedRuns:
    """The related runs below ``root``; none for a run that is not below it."""
    from epochal.records.index import Index

    if Path(root).absolute() not in record.path.absolute().parents:
        return RelatedRuns()
    key = replicate_key(record.run, record.provenance)
    with Index.open(root) as index:
        index.refresh(progress)
        ask = f"SELECT {_COLUMNS} FROM runs WHERE"
        children = index.fetch(f"{ask} parent = ? ORDER BY started, path", [record.path.name])
        alike = index.fetch(
            f"{ask} replicate = ? AND status IN (?, ?) ORDER BY started, path",
            [key, *COMPLETED_STATUSES],
        )
    found = [RelatedRun(*row) for row in alike] if key else []
    found = [found[place] for place in latest_per_seed([one.seed for one in found])]
    return RelatedRuns(
        tuple(RelatedRun(*row) for row in children), tuple(found) if len(found) > 1 else ()
    )
