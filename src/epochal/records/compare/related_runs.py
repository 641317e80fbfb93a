"""The runs that belong to a run: what came from it, and what differs only by seed."""

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
    """Another run, as far as a line about it needs."""

    path: str
    """Of its folder, from the folder of all runs on."""

    run: str
    status: str
    kind: str
    """What it is of its parent; empty for a run without one."""

    seed: int | None
    best: float | None


@final
@dataclass(frozen=True, slots=True)
class RelatedRuns:
    """All that belong to one run."""

    children: tuple[RelatedRun, ...] = ()
    """Whose parent it is."""

    replicates: tuple[RelatedRun, ...] = ()
    """Those that finished, one of each seed, the run itself among them; empty if it is alone."""


def find_related_runs(
    record: RunRecord, root: Path, progress: Callable[[str], None]
) -> RelatedRuns:
    """The relatives of a run among those below ``root``; none for a run that lies elsewhere."""
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
