"""``epochal runs prune``: deletes runs after showing them and the space they free."""

from __future__ import annotations

import os
import sys
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, Any

from epochal.cli.arguments import print_json
from epochal.cli.draw.progress import Progress
from epochal.cli.draw.text_table import format_table
from epochal.errors import ConfigError, Problem, RecordError
from epochal.experiment.config.choices import add_options
from epochal.records.folder.disk_usage import FreedSpace, measure_freed_bytes
from epochal.records.folder.folder import CHECKPOINTS_DIR
from epochal.records.prune import (
    PrunePlan,
    RetentionPolicy,
    find_linked_runs,
    finish_interrupted_removals,
    get_code_store_dir,
    plan_pruning,
    remove_checkpoints,
    remove_run,
    remove_unused_code,
)
from epochal.records.query.query_runs import RunQuery, query_runs
from epochal.records.query.resolve_names import ConfigKey
from epochal.records.query.syntax import ACCEPTED_TIMES, read_quantity
from epochal.records.removable import find_other_files, why_not_removable
from epochal.text.command import epochal_command
from epochal.text.escape import escape_control
from epochal.text.formatting import format_bytes, format_count, format_seconds, format_value
from epochal.text.terminal import is_confirmed, print_wrapped

if TYPE_CHECKING:
    import argparse
    from pathlib import Path

    from epochal.records.index import Index
    from epochal.records.query.query_runs import QueryResult

PRUNE_WORD = "prune"
"""The first word of ``epochal runs`` that selects this."""

_OWN = ("older", "keep_best", "keep_last", "checkpoints", "yes")
_SHOWN = 5
_LISTING = ("columns", "group", "limit", "sort", "output", "format", "archived")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options for deleting."""
    group = parser.add_argument_group(
        "epochal runs prune",
        "deletes the runs that WORD, --where, --search, --status and these options select; shows "
        "them and asks first; never deletes running runs, runs that others were started from, and "
        "runs that result tables show",
    )
    texts = {
        "--older TIME": "only runs that ended at least this long ago: 30d, 12h",
        "--keep-last N": "keep the newest N of each tag",
        "--keep-best N": "keep the best N of each tag, by the monitored metric",
        "--checkpoints": "delete only checkpoints and keep the records",
        "--yes": "delete without asking",
    }
    add_options(group, texts)


def refuse_options(args: argparse.Namespace) -> None:
    """Refuse the options of ``prune`` for other commands."""
    for name in _OWN:
        if getattr(args, name) not in (None, False):
            option = f"--{name.replace('_', '-')}"
            hint = f"write {epochal_command()} runs prune {option} ..."
            raise ConfigError(Problem(option, "is for deleting runs", hint=hint))


def execute(index: Index, run_query: RunQuery, args: argparse.Namespace) -> int:
    """Show what would be deleted and freed, ask, and delete it."""
    policy = _policy(args)
    _refuse_listing(args)
    if not (run_query.where or run_query.search or run_query.words or run_query.status):
        _refuse_everything(policy)
        is_alone = policy == RetentionPolicy(keep_best=policy.keep_best)
        policy = replace(policy, keeps_unranked=is_alone)
    now = datetime.now(UTC)
    whole = query_runs(index, RunQuery())
    why_not = partial(why_not_removable, root=index.root, is_whole=not args.checkpoints)
    linked = {} if args.checkpoints else find_linked_runs(index.root)
    chosen = query_runs(index, run_query)
    made = plan_pruning(whole, chosen, policy, now=now, why_not=why_not, linked=linked)
    if args.checkpoints:  # runs without checkpoints are left out
        rows = [row for row in made.to_delete if any((whole.path(row) / CHECKPOINTS_DIR).glob("*"))]
        made = replace(made, to_delete=rows)
    folders = [whole.path(row) for row in made.to_delete]
    targets = [folder / CHECKPOINTS_DIR if args.checkpoints else folder for folder in folders]
    sizes = [measure_freed_bytes(target) for target in targets]
    usage = FreedSpace()
    for target in targets:
        usage.add(target)
    own = usage.freed_bytes
    if not args.checkpoints:
        usage.add_store(get_code_store_dir(index.root))
    if args.json:
        return _execute_json(made, folders, sizes, (own, usage.freed_bytes), index, args)
    _show(made, sizes)
    if not made.to_delete:
        print("nothing to delete")
        return 0
    _show_elsewhere(whole, made)
    if not args.checkpoints:
        _show_other_files(folders)
    what = _what(len(folders), args)
    print(f"\n{what}: frees {format_bytes(usage.freed_bytes)}")
    _refuse_read_only(folders)
    if not args.yes and not _is_confirmed(what):
        return 0
    return _delete(folders, own, index, args)


def _policy(args: argparse.Namespace) -> RetentionPolicy:
    problems = []
    seconds = 0.0
    if args.older is not None:
        length = read_quantity(args.older)
        if length is None or length.unit != "s":
            what = f"must be a duration, got {args.older!r}"
            problems.append(Problem("--older", what, hint=f"write {ACCEPTED_TIMES}"))
        else:
            seconds = length.amount
    for name in ("keep_last", "keep_best"):
        if getattr(args, name) is not None and getattr(args, name) < 1:
            option = f"--{name.replace('_', '-')}"
            what = f"must be at least 1, got {getattr(args, name)}"
            problems.append(Problem(option, what, hint="leave it out to keep none"))
    if problems:
        raise ConfigError(*problems)
    return RetentionPolicy(
        older_seconds=seconds, keep_last=args.keep_last or 0, keep_best=args.keep_best or 0
    )


def _refuse_listing(args: argparse.Namespace) -> None:
    for name in _LISTING:
        if getattr(args, name) not in (None, "") and getattr(args, name) is not False:
            what = "is for lists of runs, not for deleting"
            hint = "leave it out; --keep-last and --keep-best select by time and result"
            if name == "archived":
                hint = 'write --where "archived = true" to delete only archived runs'
            raise ConfigError(Problem(f"--{name}", what, hint=hint))


def _refuse_everything(policy: RetentionPolicy) -> None:
    if policy == RetentionPolicy():
        what = "does not say which runs to delete"
        hint = (
            f'write {epochal_command()} runs prune --status failed, --older 30d, or --where "..."'
        )
        raise ConfigError(Problem("runs prune", what, hint=hint))


def _show(made: PrunePlan, sizes: list[int]) -> None:
    if made.to_delete:
        header = ("run", "project", "tag", "status", "age", "best", "size")
        rows = []
        for row, size in zip(made.to_delete, sizes, strict=True):
            age = "" if row["age"] is None else format_seconds(row["age"])
            facts = [row[name] or "" for name in ("run", "project", "tag", "status")]
            rows.append([*facts, age, format_value(row["best"]), format_bytes(size)])
        print(format_table(header, rows))
    if made.protected:
        print("\nkept:" if made.to_delete else "kept:")
        rows = [[f"  {row['run']}", row["tag"] or "", reason] for row, reason in made.protected]
        print(format_table(("  run", "tag", "because it"), rows, has_prose=True))


def _show_elsewhere(whole: QueryResult, made: PrunePlan) -> None:
    """Print where checkpoints are outside the folders of runs; they are not deleted."""
    places = whole.values(ConfigKey("checkpoint.dir", "checkpoint.dir"))
    to_delete = {row["id"] for row in made.to_delete}
    for row, place in zip(whole.rows, places, strict=True):
        if place is not None and row["id"] in to_delete:
            print_wrapped([f"  {row['run']} has checkpoints in {place}: they are kept"])


def _show_other_files(folders: list[Path]) -> None:
    """Print which files that Epochal did not write are deleted too."""
    for folder in folders:
        if names := find_other_files(folder):
            more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
            print_wrapped([f"  {folder.name} also has {', '.join(names[:_SHOWN])}{more}"])


def _what(count: int, args: argparse.Namespace) -> str:
    runs = format_count(count, "run")
    return f"deletes the checkpoints of {runs}" if args.checkpoints else f"deletes {runs}"


def _refuse_read_only(folders: list[Path]) -> None:
    for folder in folders:
        if not os.access(folder.parent, os.W_OK):
            what = f"{folder.parent}: no write permission, so nothing was deleted"
            raise RecordError(f"{what}\n  ask for write permission")


def _is_confirmed(what: str) -> bool:
    if not sys.stdin.isatty():
        print("nothing was deleted; add --yes to do it")
        return False
    if not is_confirmed(f"{what.replace('deletes', 'delete', 1)}?"):
        print("nothing was deleted")
        return False
    return True


def _delete(folders: list[Path], own: int, index: Index, args: argparse.Namespace) -> int:
    failures, freed = _remove(folders, own, index, args)
    done = len(folders) - len(failures)
    runs = format_count(done, "run")
    whose = f"the checkpoints of {runs}" if args.checkpoints else runs
    print(f"deleted {whose}, freed {format_bytes(freed)}")
    for failure in failures:
        print(escape_control(str(failure)), file=sys.stderr)
    return RecordError.exit_code if failures else 0


def _remove(
    folders: list[Path], own: int, index: Index, args: argparse.Namespace
) -> tuple[list[RecordError], int]:
    """Delete runs or checkpoints of ``own`` bytes; returns the failures and the bytes freed."""
    finish_interrupted_removals(
        {folder if args.checkpoints else folder.parent for folder in folders}
    )
    failures = []
    for folder in folders:
        try:
            (remove_checkpoints if args.checkpoints else remove_run)(folder, index.root)
        except RecordError as error:
            failures.append(error)
    left = FreedSpace()
    for folder in folders:
        left.add(folder / CHECKPOINTS_DIR if args.checkpoints else folder)
    freed = own - left.freed_bytes
    if not args.checkpoints:
        freed += remove_unused_code(index.root)
    with Progress() as progress:
        index.refresh(progress)
    return failures, freed


def _execute_json(
    made: PrunePlan,
    folders: list[Path],
    sizes: list[int],
    freeing: tuple[int, int],
    index: Index,
    args: argparse.Namespace,
) -> int:
    facts: dict[str, Any] = {
        "runs": [
            {
                "path": str(folder),
                "id": row["run"],
                "status": row["status"],
                "bytes": size,
                "other_files": find_other_files(folder),
            }
            for row, folder, size in zip(made.to_delete, folders, sizes, strict=True)
        ],
        "stays": [{"id": row["run"], "because_it": reason} for row, reason in made.protected],
        "bytes": freeing[1],
        "deleted": False,
    }
    failures: list[RecordError] = []
    if args.yes and folders:
        _refuse_read_only(folders)
        failures, freed = _remove(folders, freeing[0], index, args)
        facts |= {"deleted": True, "freed": freed, "failures": [str(one) for one in failures]}
    print_json(facts)
    return RecordError.exit_code if failures else 0
