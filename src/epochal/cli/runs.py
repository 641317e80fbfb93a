"""``epochal runs``: the runs below a folder, newest last."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING

from epochal.cli.table import format_seconds, format_table, format_value
from epochal.cli.words import add_json_option, add_runs_option, print_json
from epochal.records import RunSummary, find_runs

if TYPE_CHECKING:
    import argparse

_HEADER = ("run", "project", "tag", "runner", "status", "steps", "time", "best", "result")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the verb's words and options."""
    parser.add_argument("words", nargs="*", metavar="WORD", help="only runs whose path has it")
    parser.add_argument("--status", metavar="NAME", help="only runs with this status")
    parser.add_argument("--limit", type=int, metavar="N", help="only the newest N")
    add_runs_option(parser)
    add_json_option(parser)


def execute(args: argparse.Namespace) -> int:
    """Print a line per run."""
    summaries = [summary for summary in find_runs(args.runs_dir) if _is_wanted(summary, args)]
    if args.limit is not None:
        summaries = summaries[-args.limit :] if args.limit > 0 else []
    if args.json:
        print_json([_to_json(summary) for summary in summaries])
    elif summaries:
        print(format_table(_HEADER, [_row(summary) for summary in summaries]))
        print(f"\n`epochal show {summaries[-1].id}` shows one of them, `last` is the newest")
    else:
        print(f"no such runs below {args.runs_dir}; `epochal run FILE` makes one")
    return 0


def _is_wanted(summary: RunSummary, args: argparse.Namespace) -> bool:
    if args.status is not None and summary.status != args.status:
        return False
    text = f"{summary.path} {summary.tag}"
    return all(word in text for word in args.words)


def _row(summary: RunSummary) -> tuple[str, ...]:
    seconds = _seconds(summary)
    return (
        summary.id,
        summary.project,
        summary.tag,
        summary.runner,
        summary.status,
        str(summary.step),
        "" if seconds is None else format_seconds(seconds),
        format_value(summary.result.get("best")),
        _outcome(summary),
    )


def _outcome(summary: RunSummary) -> str:
    """What came of a run: its error, its figures, why it stopped, or what is damaged."""
    if error := summary.result.get("exception_type"):
        message = str(summary.result.get("message") or "")
        return f"{error}: {message}".partition("\n")[0]
    figures = [
        f"{name} {format_value(value)}"
        for name, value in _metrics(summary).items()
        if not name.startswith("train/")
    ]
    return "  ".join(figures) or summary.reason or "; ".join(summary.damage)


def _metrics(summary: RunSummary) -> dict[str, object]:
    metrics = summary.result.get("metrics")
    return metrics if isinstance(metrics, dict) else {}


def _seconds(summary: RunSummary) -> float | None:
    try:
        begin = datetime.fromisoformat(summary.started)
        return (datetime.fromisoformat(summary.ended) - begin).total_seconds()
    except ValueError:  # it has not ended, or the record is damaged
        return None


def _to_json(summary: RunSummary) -> dict[str, object]:
    names = (
        "id",
        "project",
        "tag",
        "runner",
        "status",
        "reason",
        "step",
        "epoch",
        "started",
        "ended",
    )
    return {
        "path": str(summary.path),
        **{name: getattr(summary, name) for name in names},
        "best": summary.result.get("best"),
        "metrics": _metrics(summary),
        "damage": list(summary.damage),
    }
