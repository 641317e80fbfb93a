"""``epochal runs``: lists, filters, groups and exports runs, newest last."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from epochal import durable
from epochal.cli import runs_prune
from epochal.cli.arguments import add_json_option, add_runs_dir_option
from epochal.cli.draw.progress import Progress
from epochal.cli.pages.run_table import (
    describe_no_runs,
    format_columns,
    format_group_columns,
    format_groups,
    format_runs,
    run_to_json,
)
from epochal.errors import ConfigError, Problem, suggest
from epochal.experiment.config.choices import add_options
from epochal.records.index import Index
from epochal.records.layout.sweep_folders import get_sweeps_dir
from epochal.records.query.compile_sql import STATUSES
from epochal.records.query.query_runs import (
    QueryResult,
    RunQuery,
    columns_of,
    count_hidden_runs,
    is_root,
    locate,
    names_in,
    orders_of,
    query_runs,
)
from epochal.records.query.syntax import QueryText
from epochal.records.query.tabulate import (
    REPLICATE,
    default_columns,
    group,
    sort_groups,
    tabulate_groups,
    tabulate_runs,
)
from epochal.registry.project_file import name_run
from epochal.text.command import epochal_command
from epochal.text.escape import escape_control, escape_control_json
from epochal.text.formatting import format_count
from epochal.text.terminal import wrap

if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence

    from epochal.records.query.resolve_names import Target
    from epochal.records.query.tabulate import RunGroup

_FORMATS = ("table", "json", "csv", "parquet")
_SUFFIXES = {".json": "json", ".csv": "csv", ".parquet": "parquet", ".txt": "table"}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments and options."""
    words = "only runs whose path contains it; `prune` as the first word deletes runs"
    parser.add_argument("words", nargs="*", metavar="WORD", help=words)
    texts = {
        "--where TEST": 'filter, such as "optim.lr > 1e-4 and val/acc > 0.9"',
        "--search WORDS": "only runs with these words in README, tag or config",
        "--status NAME": "only runs with this status",
        "--sort NAMES": "sort by these instead of the time; -val/acc puts the largest first",
        "--columns NAMES": 'columns, such as "status, optim.*, max(val/acc)"; '
        "`changed` stands for all settings that differ",
    }
    add_options(parser, texts, where="", search="", status="", sort="", columns="")
    parser.add_argument(
        "--group",
        nargs="?",
        const="replicate",
        default="",
        metavar="NAMES",
        help="group runs that differ only by seed, or have equal NAMES; "
        "shows means with 95%% intervals",
    )
    add_options(
        parser,
        {
            "--limit N": "only the newest N; with --sort the first N",
            "--archived": "list archived runs as well",
            "--trials": "list the trials of sweeps as well, instead of one line for each sweep",
        },
    )
    parser.add_argument("--format", choices=_FORMATS, help="output format (default: table)")
    output = "write to a file in the format of its suffix: .csv, .parquet, .json, .txt"
    parser.add_argument("-o", "--output", type=Path, metavar="FILE", help=output)
    add_runs_dir_option(parser)
    add_json_option(parser)
    runs_prune.add_arguments(parser)


def execute(args: argparse.Namespace) -> int:
    """Print the list of runs, or prune runs."""
    if args.status and args.status not in STATUSES:
        what = f"unknown status {args.status!r}"
        raise ConfigError(Problem("--status", what, hint=suggest(args.status, STATUSES)))
    if args.limit is not None and args.limit < 0:
        what = f"must not be negative, got {args.limit}"
        raise ConfigError(Problem("--limit", what, hint="leave it out to see all"))
    form = _format_of(args)
    root, below = locate(args.runs_dir)
    is_pruning = args.words[:1] == [runs_prune.PRUNE_WORD]
    if not is_pruning:
        runs_prune.refuse_options(args)
    with Index.open(root, is_kept=is_root(root)) as index:
        with Progress() as progress:
            index.refresh(progress)
        for note in index.notes:
            print(escape_control(note), file=sys.stderr)
        if is_pruning:
            run_query = build_run_query(args, args.words[1:], below)
            return runs_prune.execute(index, replace(run_query, hides_archived=False), args)
        _list(index, build_run_query(args, args.words, below), args, form)
    return 0


def build_run_query(args: argparse.Namespace, words: Sequence[str], below: str) -> RunQuery:
    """The query that the options describe."""
    return RunQuery(
        where=args.where,
        sort=args.sort,
        columns=args.columns,
        search=args.search,
        limit=None if args.group else args.limit,
        words=tuple(words),
        status=args.status,
        hides_archived=not args.archived,
        below=below,
        marks="--",
    )


def _format_of(args: argparse.Namespace) -> str:
    named = {"json"} if args.json else set()
    named |= {args.format} if args.format else set()
    if len(named) > 1:
        what = f"--json and --format {args.format} contradict each other"
        raise ConfigError(Problem("--format", what, hint="leave out one of them"))
    suffix = args.output.suffix.lower() if args.output is not None else ".txt"
    form = next(iter(named), None) or _SUFFIXES.get(suffix)
    if form is None:
        hint = f"add --format, or name it *{', *'.join(_SUFFIXES)}"
        raise ConfigError(Problem("-o", f"{args.output} has no known suffix", hint=hint))
    if form == "parquet" and args.output is None:
        what = "a Parquet file cannot be printed"
        raise ConfigError(Problem("--format", what, hint="add -o runs.parquet"))
    return str(form)


def _list(index: Index, run_query: RunQuery, args: argparse.Namespace, form: str) -> None:
    if form != "table" or args.trials or _is_precise(args):
        result, sweeps = query_runs(index, run_query), list[str]()
    else:
        result, sweeps = _fold_sweeps(index, run_query, args.limit)
    asked = columns_of(index, run_query.text("columns"), result)
    groups: list[RunGroup] | None = None
    by: list[Target] = []
    if args.group:
        by = columns_of(index, QueryText(args.group, "--group"), result)
        groups = _groups(index, run_query, result, by, args.limit)
    hidden = _describe_hidden(index, run_query)
    if form != "table":
        if hidden:
            print(hidden, file=sys.stderr)
        _write(_encode(result, asked, groups, form), args, form)
        return
    names = asked or names_in(index, run_query)
    if groups is None:
        text = (format_columns if asked else format_runs)(result, names)
    elif asked:
        text = format_group_columns(result, groups, names)
    else:
        shown = [target for target in by if target != REPLICATE]
        text = format_groups(result, groups, shown, names)
    last = -1 if not groups else max(groups[-1].places)
    if args.output is None and result.rows:
        name = name_run(result.path(result.rows[last]))
        hint = f"`{epochal_command()} show {name}` shows one of them, `last` is the newest training"
        text = "\n".join([text, "", *wrap(hint), *filter(None, [hidden])])
    elif not result.rows and not sweeps:
        text = describe_no_runs(index, run_query, args.runs_dir)
    if sweeps:
        hint = f"`{epochal_command()} show SWEEP` shows one, --trials lists the trials"
        text = "\n".join([*([text, ""] if result.rows else []), *sweeps, *wrap(hint)])
    _write(f"{text}\n".encode(), args, form)


def _describe_hidden(index: Index, run_query: RunQuery) -> str:
    count = count_hidden_runs(index, run_query)
    hint = "--archived lists them" if count > 1 else "--archived lists it"
    return f"{format_count(count, 'archived run')} not shown: {hint}" if count else ""


def _is_precise(args: argparse.Namespace) -> bool:
    """Whether options say which runs are wanted, trials included."""
    names = ("where", "search", "status", "sort", "columns", "group", "words")
    return any(getattr(args, name) for name in names)


def _fold_sweeps(
    index: Index, run_query: RunQuery, limit: int | None
) -> tuple[QueryResult, list[str]]:
    """The runs without trials of sweeps, and a line for each sweep."""
    if not get_sweeps_dir(index.root).is_dir():
        return query_runs(index, run_query), []
    from epochal.cli.pages.sweep_page import summarise_sweep
    from epochal.sweep.sweep_folder import list_sweeps

    sweeps = {one.id: one for one in list_sweeps(index.root)}
    rows = query_runs(index, replace(run_query, limit=None)).rows
    plain = [row for row in rows if row["sweep"] not in sweeps]
    num = len(plain) if limit is None else min(limit, len(plain))
    found = {row["sweep"] for row in rows}
    lines = [
        summarise_sweep(one) for one in sweeps.values() if one.id in found or not run_query.below
    ]
    return QueryResult(index, plain[len(plain) - num :]), lines


def _encode(
    result: QueryResult, asked: Sequence[Target], groups: Sequence[RunGroup] | None, form: str
) -> bytes:
    if form == "json" and not asked and groups is None:
        return _to_json([run_to_json(result, row) for row in result.rows])
    targets = asked or default_columns(result)
    table = tabulate_runs(result, targets)
    if groups is not None:
        table = tabulate_groups(result, targets, groups)
    if form == "json":
        return _to_json(table.rows)
    return table.to_csv() if form == "csv" else table.to_parquet()


def _to_json(value: object) -> bytes:
    return durable.encode_json(value, indent=2) + b"\n"


def _groups(
    index: Index, run_query: RunQuery, result: QueryResult, by: Sequence[Target], limit: int | None
) -> list[RunGroup]:
    """The groups in the order of their runs, or sorted by their means."""
    groups = group(result, by)
    for target, is_descending in orders_of(index, run_query)[:1]:
        groups = sort_groups(groups, result.values(target), is_descending=is_descending)
    if limit is None:
        return groups
    num = min(limit, len(groups))
    return groups[:num] if run_query.sort else groups[len(groups) - num :]


def _write(data: bytes, args: argparse.Namespace, form: str) -> None:
    if form != "parquet":
        escape = escape_control_json if form == "json" else escape_control
        data = escape(data.decode()).encode()
    if args.output is None:
        print(data.decode().removesuffix("\n"))
    else:
        durable.write_bytes(args.output, data)
        print(f"wrote {args.output}")
