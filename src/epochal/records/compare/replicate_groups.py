"""Finds the children and the replicates of a run, and the mean metrics of replicates."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, final

from epochal.records.find import read_run
from epochal.records.index.refresh import ignore_progress
from epochal.records.index.replicates import (
    MeanEstimate,
    estimate_mean,
    latest_per_seed,
    replicate_key,
)
from epochal.records.layout.run_status import COMPLETED_STATUSES

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from epochal.records.folder.reader import RunRecord
    from epochal.records.index.refresh import ProgressCallback

BEST = "best"
SEED = "seed"


@final
@dataclass(frozen=True, kw_only=True, slots=True)
class ReplicateGroup:
    """Runs that differ only by seed, one per seed, and the means of their metrics."""

    key: str
    runs: tuple[str, ...]
    """The ids of the runs that count, oldest first."""

    left_out: Mapping[str, int]
    """How many runs do not count, by reason: a status such as ``failed``, or ``seed`` for a
    repeated one."""

    means: Mapping[str, MeanEstimate]
    """By metric, the mean of the last values; ``best`` for the best monitored values."""


def find_replicates(
    record: RunRecord, root: Path, progress: ProgressCallback = ignore_progress
) -> ReplicateGroup | None:
    """The replicates of a run, including itself; None if its config is lost.

    Of a run that is not below ``root``, the siblings of its folder are searched.
    """
    key = replicate_key(record.run, record.provenance)
    if not key:
        return None
    is_inside = root.absolute() in record.path.absolute().parents
    found = _find_in_index(key, root, progress) if is_inside else _find_in_siblings(key, record)
    ended = [one for one in found if one.summary.status in COMPLETED_STATUSES]
    counted = [ended[place] for place in latest_per_seed([one.run.get("seed") for one in ended])]
    return ReplicateGroup(
        key=key,
        runs=tuple(one.summary.id for one in counted),
        left_out=_count_others(found, len(ended) - len(counted)),
        means=_estimate_means(counted),
    )


def _count_others(found: Sequence[RunRecord], repeated: int) -> dict[str, int]:
    incomplete = Counter(
        one.summary.status for one in found if one.summary.status not in COMPLETED_STATUSES
    )
    return {**dict(sorted(incomplete.items())), **({SEED: repeated} if repeated else {})}


def are_replicates(groups: Sequence[ReplicateGroup | None]) -> bool:
    """Whether the runs of these groups differ only by seed, or not at all."""
    keys = {None if group is None else group.key for group in groups}
    return None not in keys and len(keys) == 1


def _find_in_index(key: str, root: Path, progress: ProgressCallback) -> list[RunRecord]:
    from epochal.records.index import Index

    with Index.open(root) as index:
        index.refresh(progress)
        question = "SELECT path FROM runs WHERE replicate = ? ORDER BY started, run"
        return [read_run(root / path) for (path,) in index.fetch(question, [key])]


def _find_in_siblings(key: str, record: RunRecord) -> list[RunRecord]:
    folders = sorted(one.parent for one in record.path.absolute().parent.glob("*/run.json"))
    found = [read_run(folder) for folder in folders]
    alike = [one for one in found if replicate_key(one.run, one.provenance) == key]
    return sorted(alike, key=lambda one: one.summary.started)


def _estimate_means(records: list[RunRecord]) -> dict[str, MeanEstimate]:
    """The mean of every value that all runs have."""
    values = [_final_values(record) for record in records]
    names = [name for name in values[0] if all(name in one for one in values)] if values else []
    return {name: estimate_mean(one[name] for one in values) for name in names}


def _final_values(record: RunRecord) -> dict[str, float]:
    metrics = record.result.get("metrics")
    found = {**(metrics if isinstance(metrics, dict) else {}), BEST: record.result.get(BEST)}
    return {
        str(name): float(value) for name, value in found.items() if isinstance(value, int | float)
    }


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
