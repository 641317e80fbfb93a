"""``epochal index``: the cache that makes lists of runs fast."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from epochal.cli.arguments import add_json_option, add_runs_dir_option, print_json
from epochal.cli.draw.progress import Progress
from epochal.errors import RecordError
from epochal.records.index import Index
from epochal.records.index.index import find_index_errors
from epochal.text.command import epochal_command
from epochal.text.formatting import format_bytes, format_count
from epochal.text.terminal import print_wrapped

if TYPE_CHECKING:
    import argparse

_ACTIONS = ("refresh", "rebuild", "verify", "where")
_MAX_FAULTS = 20


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments and options."""
    parser.add_argument(
        "action",
        nargs="?",
        choices=_ACTIONS,
        default=_ACTIONS[0],
        help="refresh: read changed runs, as every list of runs does; rebuild: read all runs "
        "again; verify: compare the index with the folders; where: print the path of its file",
    )
    add_runs_dir_option(parser)
    add_json_option(parser)


def execute(args: argparse.Namespace) -> int:
    """Refresh, rebuild or verify the index, and print the result."""
    with Index.open(args.runs_dir) as index:
        if args.action == "where":
            facts: dict[str, Any] = _place(index)
        else:
            done = _refresh(index, args.action)
            facts = _place(index) | done  # a read-only folder moves it to memory
    if args.json:
        print_json(facts)
    elif args.action == "where":
        print(facts["path"] or "in memory")
    else:
        _print_facts(facts)
    return RecordError.exit_code if facts.get("faults") else 0


def _place(index: Index) -> dict[str, Any]:
    path = None if index.path is None else str(index.path)
    return {"path": path, "is_shared": index.is_shared}


def _refresh(index: Index, action: str) -> dict[str, Any]:
    start = time.monotonic()
    with Progress() as progress:
        done = index.refresh(progress, is_all=action == "rebuild")
        faults = list(find_index_errors(index, progress)) if action == "verify" else None
    return {
        "runs": done.total,
        "read": done.read,
        "removed": done.removed,
        "is_current": done.is_current,
        "seconds": time.monotonic() - start,
        "bytes": index.path.stat().st_size if index.path is not None else 0,
        "notes": index.notes,
        **({} if faults is None else {"faults": faults}),
    }


def _print_facts(facts: dict[str, Any]) -> None:
    place = f"{facts['path']}, {format_bytes(facts['bytes'])}" if facts["path"] else "in memory"
    print(f"{format_count(facts['runs'], 'run')} in the index ({place})")
    changes = f"{facts['read']:,} read, {facts['removed']:,} removed"
    print(f"{changes}, in {facts['seconds']:.1f} s")
    for note in facts["notes"]:
        print_wrapped([note])
    if facts["is_shared"]:
        print("its file is on a network file system: it has no write-ahead log")
    if not facts["is_current"]:
        print("another process is refreshing it: these are the runs known before")
    if "faults" in facts:
        _print_faults(facts["faults"])


def _print_faults(faults: list[str]) -> None:
    if not faults:
        print("it agrees with the folders")
        return
    print(f"\n{format_count(len(faults), 'error')}:")
    for fault in faults[:_MAX_FAULTS]:
        print_wrapped([f"  {fault}"])
    if len(faults) > _MAX_FAULTS:
        print(f"  and {len(faults) - _MAX_FAULTS} more")
    print(f"`{epochal_command()} index rebuild` reads all runs again")
