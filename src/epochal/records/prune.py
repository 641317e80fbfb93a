"""Decides which runs a policy deletes, which it protects and why, and deletes them atomically."""

from __future__ import annotations

import errno
import math
import os
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, final

from epochal import durable
from epochal.errors import RecordError
from epochal.records.folder.folder import CHECKPOINTS_DIR
from epochal.records.folder.reader import MONITOR_KEYS, get_monitor_mode, read_folder
from epochal.records.layout.lease import holding_lease
from epochal.records.layout.os_errors import describe_os_error
from epochal.records.layout.process import host_name, is_process_gone
from epochal.records.layout.run_folders import EPOCHAL_DIR
from epochal.records.layout.run_status import ACTIVE_STATUSES
from epochal.records.project.result_tables import ResultTables
from epochal.records.query.resolve_names import ConfigKey
from epochal.records.query.syntax import read_time
from epochal.records.removable import why_not_removable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
    from datetime import datetime

    from epochal.records.folder.reader import Mode
    from epochal.records.query.query_runs import QueryResult

_WEIGHTS = ("init_from", "init_from.path")
_INDEPENDENT_KINDS = ("", "retried", "rerun")
"""Relations to a parent that do not need the parent."""

RunRow = dict[str, Any]


@final
@dataclass(frozen=True, kw_only=True, slots=True)
class RetentionPolicy:
    """The conditions for deleting a run."""

    older_seconds: float = 0.0
    """The minimum time since the end of the run."""

    keep_last: int = 0
    """How many of the newest runs of each tag stay."""

    keep_best: int = 0
    """How many of the best runs of each tag stay, by their monitored metric.

    If none has a best value, the newest stays.
    """

    keeps_unranked: bool = False
    """Whether runs without a best value stay, because only the rank selects runs."""


@final
@dataclass(frozen=True, slots=True)
class PrunePlan:
    """The runs to delete."""

    to_delete: list[RunRow]
    protected: list[tuple[RunRow, str]]
    """Selected runs that stay, each with the reason."""


def plan_pruning(
    all_runs: QueryResult,
    chosen: QueryResult,
    policy: RetentionPolicy,
    *,
    now: datetime,
    why_not: Callable[[Path], str] = lambda folder: "",
    linked: Mapping[str, str] = MappingProxyType({}),
) -> PrunePlan:
    """Which of the ``chosen`` runs a policy deletes or protects; ``all_runs`` includes the others.

    ``why_not`` returns why a folder must not be deleted, or nothing; ``linked`` maps the runs that
    result tables show to the name of a table.
    """
    protected: dict[int, tuple[RunRow, str]] = {}
    to_delete: dict[int, RunRow] = {}
    kept = _keep_by_rank(all_runs, policy)
    for row in chosen.rows:
        if _is_young(row, policy.older_seconds, now):
            continue
        to_delete[row["id"]] = row
        if row["status"] in ACTIVE_STATUSES:
            protected[row["id"]] = row, "is running"
        elif row["id"] in kept:
            protected[row["id"]] = row, kept[row["id"]]
        elif row["run"] in linked:
            protected[row["id"]] = row, f"has results in the table {linked[row['run']]!r}"
        elif reason := why_not(all_runs.path(row)):
            protected[row["id"]] = row, reason
    for number in protected:
        del to_delete[number]
    _protect_required_runs(all_runs, to_delete, protected)
    return PrunePlan(list(to_delete.values()), list(protected.values()))


def find_linked_runs(root: Path) -> dict[str, str]:
    """The ids of runs that result tables show, each with the name of a table."""
    tables = ResultTables(root).list_tables()
    return {cell.run: table.name for table in tables for cell in table.content.metric_cells}


def _is_young(row: RunRow, least: float, now: datetime) -> bool:
    if not least:
        return False
    moment = read_time(row["ended"]) or read_time(row["started"])
    if moment is None:  # its age is unknown
        return True
    return (now - moment.astimezone(now.tzinfo)).total_seconds() < least


def _keep_by_rank(all_runs: QueryResult, policy: RetentionPolicy) -> dict[int, str]:
    kept: dict[int, str] = {}
    tags: dict[tuple[Any, ...], list[RunRow]] = {}
    for row in all_runs.rows:
        tags.setdefault((row["project"], row["tag"], row["runner"]), []).append(row)
    for rows in tags.values():
        rows.sort(key=lambda row: (row["started"] or "", row["id"]))
        if policy.keep_last:
            for row in rows[-policy.keep_last :]:
                kept[row["id"]] = f"is {_describe_rank('newest', policy.keep_last)} of its tag"
    if policy.keep_best:
        modes = _modes(all_runs)
        for rows in tags.values():
            for monitor in {row["monitor"] for row in rows}:
                alike = [row for row in rows if row["monitor"] == monitor]
                kept |= _keep_best(alike, policy, modes)
    return kept


def _keep_best(
    rows: Sequence[RunRow], policy: RetentionPolicy, modes: Mapping[int, Mode]
) -> dict[int, str]:
    """The runs with one monitored metric that stay, and why."""
    ranked = [row for row in rows if _has_best(row)]
    ranked.sort(key=lambda row: row["best"] * (-1 if modes[row["id"]] == "max" else 1))
    why = f"is {_describe_rank('best', policy.keep_best)} of its tag"
    kept = {row["id"]: why for row in ranked[: policy.keep_best]}
    if policy.keeps_unranked:
        kept |= {row["id"]: "has no best value" for row in rows if not _has_best(row)}
    return kept or {rows[-1]["id"]: "is the newest of its tag, where none has a best value"}


def _has_best(row: RunRow) -> bool:
    return row["best"] is not None and math.isfinite(row["best"])


def _describe_rank(word: str, count: int) -> str:
    return f"the {word}" if count == 1 else f"one of the {word} {count}"


def _modes(all_runs: QueryResult) -> dict[int, Mode]:
    """Which way is better in each run."""
    columns = [all_runs.values(ConfigKey(key, key)) for key in MONITOR_KEYS]
    values = zip(*columns, strict=True)
    return {
        row["id"]: get_monitor_mode(dict(zip(MONITOR_KEYS, one, strict=True)))
        for row, one in zip(all_runs.rows, values, strict=True)
    }


def _protect_required_runs(
    all_runs: QueryResult, to_delete: dict[int, RunRow], protected: dict[int, tuple[RunRow, str]]
) -> None:
    """Protect each run that a remaining run came from, took weights from, or links to."""
    needs = list(_iter_requirements(all_runs))
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


def _iter_requirements(all_runs: QueryResult) -> Iterator[tuple[RunRow, str, str]]:
    """Each run that needs another one, with the id of that one and the reason."""
    weights = [all_runs.values(ConfigKey(key, key)) for key in _WEIGHTS]
    folders = {os.path.realpath(all_runs.path(row)): row["run"] for row in all_runs.rows}
    for i, row in enumerate(all_runs.rows):
        if row["parent"] and row["parent_kind"] not in _INDEPENDENT_KINDS:
            yield row, row["parent"], f"came from it ({row['parent_kind']})"
        for column in weights:
            for part in Path(str(column[i] or "")).parts:
                yield row, part, "started from its weights"
        for target in _iter_link_targets(all_runs.path(row)):
            owner = _owner_of(target, folders)
            if owner is not None and owner != row["run"]:
                yield row, owner, "links to it"


def _iter_link_targets(folder: Path) -> Iterator[str]:
    """The targets of links in a run folder and among its checkpoints."""
    for place in (folder, folder / CHECKPOINTS_DIR):
        try:
            with os.scandir(place) as entries:
                links = [entry.path for entry in entries if entry.is_symlink()]
        except OSError:  # deleted meanwhile, or there are none
            continue
        yield from map(os.path.realpath, links)


def _owner_of(path: str, folders: Mapping[str, str]) -> str | None:
    above: Iterable[str] = (path, *map(str, Path(path).parents))
    return next((folders[one] for one in above if one in folders), None)


def remove_run(folder: Path, root: Path) -> None:
    """Delete the folder of a run below ``root``, renamed first.

    Raises:
        RecordError: It is running, in use, or not certainly a run.
    """
    _remove(folder, folder, why_not_removable(folder, root))


def remove_checkpoints(folder: Path, root: Path) -> None:
    """Delete the checkpoints of a run, but not its record; RecordError as for ``remove_run``."""
    target = folder / CHECKPOINTS_DIR
    link = "has its checkpoints elsewhere, behind a link" if target.is_symlink() else ""
    _remove(folder, target, why_not_removable(folder, root, is_whole=False) or link)


def finish_interrupted_removals(folders: Iterable[Path]) -> None:
    """Delete what interrupted removals renamed in these folders."""
    for folder in folders:
        with suppress(OSError):  # another process may be doing the same
            durable.remove_stale(folder, _is_stale)


def get_code_store_dir(root: Path) -> Path:
    """The folder with the code that runs share."""
    from epochal.records.code.content_store import CODE_STORE_DIR  # not needed to list runs

    return root / EPOCHAL_DIR / CODE_STORE_DIR


def remove_unused_code(root: Path) -> int:
    """Delete code that no run uses; returns the freed bytes."""
    from epochal.records.code.content_store import ContentStore

    return ContentStore(get_code_store_dir(root)).remove_unused()


def _remove(folder: Path, target: Path, why_not: str) -> None:
    if why_not:
        raise RecordError(f"{folder}: stays, because it {why_not}\n  delete it by hand")
    try:
        # It may have been resumed since it was listed; from now on the lease prevents that.
        if read_folder(folder).summary.status in ACTIVE_STATUSES:
            raise RecordError(f"{folder}: is running\n  wait for its end, or stop it first")
        with _holding_lease_if_possible(folder):
            if target.is_dir():
                durable.remove_tree(target, f"prune.{os.getpid()}")
    except OSError as error:
        reason = describe_os_error(error)
        raise RecordError(
            f"{target}: cannot be deleted: {reason}\n  check its permissions"
        ) from error


@contextmanager
def _holding_lease_if_possible(folder: Path) -> Iterator[None]:
    """Hold the lease of a run; on a full disk, where it cannot be written, only check it."""
    with ExitStack() as stack:
        try:
            stack.enter_context(holding_lease(folder))
        except RecordError as error:
            if getattr(error.__cause__, "errno", None) not in (errno.ENOSPC, errno.EDQUOT):
                raise
        yield


def _is_stale(owner: str) -> bool:
    word, _, number = owner.partition(".")
    return word == "prune" and number.isdecimal() and is_process_gone(int(number), host=host_name())
