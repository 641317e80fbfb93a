"""Which runs a policy deletes, and which ones stay though it names them, and why."""

from __future__ import annotations

import math
import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, final

from epochal.records.metrics.monitor import MONITOR_KEYS, get_monitor_mode
from epochal.records.query.names import ConfigKey
from epochal.records.query.sheet import read_time

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from datetime import datetime

    from epochal.records.metrics.monitor import Mode
    from epochal.records.query.ask import Answer

ACTIVE_STATUSES = ("starting", "running")
"""What is never deleted."""

CHECKPOINTS_DIR = "checkpoints"
_WEIGHTS = ("init_from", "init_from.path")
_INDEPENDENT_KINDS = ("", "retried")
"""As what a run may outlive the one it came from: it needs nothing of it."""

RunRow = dict[str, Any]


@final
@dataclass(frozen=True, kw_only=True, slots=True)
class RetentionPolicy:
    """What may go; what is not said does not matter."""

    older_seconds: float = 0.0
    """Only runs that ended at least so long ago."""

    keep_last: int = 0
    """How many of the newest stay, of each tag."""

    keep_best: int = 0
    """How many of the best stay, of each tag, by the metric that they watched.

    Where none has a best value, the newest stays.
    """

    keeps_unranked: bool = False
    """Whether runs without a best value stay, since nothing but their rank says what may go."""


@final
@dataclass(frozen=True, slots=True)
class PrunePlan:
    """What is to be deleted."""

    to_delete: list[RunRow]
    protected: list[tuple[RunRow, str]]
    """Runs that the policy names and that stay, each with the reason."""


def plan_pruning(
    whole: Answer, chosen: Answer, policy: RetentionPolicy, *, now: datetime
) -> PrunePlan:
    """What a policy means for the runs that are there.

    Args:
        whole: All runs, also those that nobody wants to delete.
        chosen: Those that may go.
        policy: What must hold for them to go.
        now: What time it is.
    """
    protected: dict[int, tuple[RunRow, str]] = {}
    to_delete: dict[int, RunRow] = {}
    kept = _kept_by_rank(whole, policy)
    for row in chosen.rows:
        if _is_young(row, policy.older_seconds, now):
            continue
        to_delete[row["id"]] = row
        if row["status"] in ACTIVE_STATUSES:
            protected[row["id"]] = row, "is at work"
        elif row["id"] in kept:
            protected[row["id"]] = row, kept[row["id"]]
    for number in protected:
        del to_delete[number]
    _protect_required_runs(whole, to_delete, protected)
    return PrunePlan(list(to_delete.values()), list(protected.values()))


def _is_young(row: RunRow, least: float, now: datetime) -> bool:
    if not least:
        return False
    moment = read_time(row["ended"]) or read_time(row["started"])
    if moment is None:  # nobody knows: it is not deleted for its age
        return True
    return (now - moment.astimezone(now.tzinfo)).total_seconds() < least


def _kept_by_rank(whole: Answer, policy: RetentionPolicy) -> dict[int, str]:
    kept: dict[int, str] = {}
    tags: dict[tuple[Any, ...], list[RunRow]] = {}
    for row in whole.rows:
        tags.setdefault((row["project"], row["tag"], row["runner"]), []).append(row)
    for rows in tags.values():
        rows.sort(key=lambda row: (row["started"] or "", row["id"]))
        if policy.keep_last:
            for row in rows[-policy.keep_last :]:
                kept[row["id"]] = f"is {_among('newest', policy.keep_last)} of its tag"
    if policy.keep_best:
        modes = _modes(whole)
        for rows in tags.values():
            for monitor in {row["monitor"] for row in rows}:
                alike = [row for row in rows if row["monitor"] == monitor]
                kept |= _kept_by_best(alike, policy, modes)
    return kept


def _kept_by_best(
    rows: Sequence[RunRow], policy: RetentionPolicy, modes: Mapping[int, Mode]
) -> dict[int, str]:
    """Those of the runs that watched one metric which stay, oldest first, and why."""
    ranked = [row for row in rows if _has_best(row)]
    ranked.sort(key=lambda row: row["best"] * (-1 if modes[row["id"]] == "max" else 1))
    why = f"is {_among('best', policy.keep_best)} of its tag"
    kept = {row["id"]: why for row in ranked[: policy.keep_best]}
    if policy.keeps_unranked:
        kept |= {row["id"]: "has no best value" for row in rows if not _has_best(row)}
    return kept or {rows[-1]["id"]: "is the newest of its tag, where none has a best value"}


def _has_best(row: RunRow) -> bool:
    return row["best"] is not None and math.isfinite(row["best"])


def _among(word: str, count: int) -> str:
    return f"the {word}" if count == 1 else f"one of the {word} {count}"


def _modes(whole: Answer) -> dict[int, Mode]:
    """Which way was better in each run."""
    columns = [whole.values(ConfigKey(key, key)) for key in MONITOR_KEYS]
    values = zip(*columns, strict=True)
    return {
        row["id"]: get_monitor_mode(dict(zip(MONITOR_KEYS, one, strict=True)))
        for row, one in zip(whole.rows, values, strict=True)
    }


def _protect_required_runs(
    whole: Answer, to_delete: dict[int, RunRow], protected: dict[int, tuple[RunRow, str]]
) -> None:
    """Spare each run that one which stays came from, began with, or links to."""
    needs = list(_iter_requirements(whole))
    while True:
        names = {row["run"]: row for row in to_delete.values()}
        held = [
            (names[other], by, how)
            for by, other, how in needs
            if other in names and by["id"] not in to_delete
        ]
        if not held:
            return
        for row, by, how in held:
            protected[row["id"]] = row, f"{by['run']} {how}"
            to_delete.pop(row["id"], None)


def _iter_requirements(whole: Answer) -> Iterator[tuple[RunRow, str, str]]:
    """Which run needs which other one by name, and how that is said."""
    weights = [whole.values(ConfigKey(key, key)) for key in _WEIGHTS]
    folders = {os.path.realpath(whole.path(row)): row["run"] for row in whole.rows}
    for i, row in enumerate(whole.rows):
        if row["parent"] and row["parent_kind"] not in _INDEPENDENT_KINDS:
            yield row, row["parent"], f"came from it ({row['parent_kind']})"
        for column in weights:
            for part in Path(str(column[i] or "")).parts:
                yield row, part, "began with its weights"
        for target in _linked(whole.path(row)):
            owner = _owner_of(target, folders)
            if owner is not None and owner != row["run"]:
                yield row, owner, "links to it"


def _linked(folder: Path) -> Iterator[str]:
    """Where the links in a run's folder lead, and those among its checkpoints."""
    for place in (folder, folder / CHECKPOINTS_DIR):
        try:
            with os.scandir(place) as entries:
                links = [entry.path for entry in entries if entry.is_symlink()]
        except OSError:  # gone meanwhile, or there are none
            continue
        yield from map(os.path.realpath, links)


def _owner_of(path: str, folders: Mapping[str, str]) -> str | None:
    above: Iterable[str] = (path, *map(str, Path(path).parents))
    return next((folders[one] for one in above if one in folders), None)
