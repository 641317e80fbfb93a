"""``epochal runs``: the runs below a folder, newest last."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, get_args

from epochal.cli.table import format_table
from epochal.cli.words import add_json_option, add_runs_option, print_json
from epochal.errors import ConfigError, Problem, suggest
from epochal.experiment.figures import format_seconds, format_value
from epochal.experiment.invocation import command, name_run
from epochal.records import RunSummary, Status, find_runs, read_run

if TYPE_CHECKING:
    import argparse

_HEADER = (
    "run",
    "project",
    "tag",
    "variant",
    "runner",
    "status",
    "reason",
    "resumed",
    "steps",
    "time",
    "best",
    "result",
)
_RARE = ("variant", "resumed")
_STATUSES = (*get_args(Status), "lost", "damaged")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the verb's words and options."""
    parser.add_argument("words", nargs="*", metavar="WORD", help="only runs whose path has it")
    parser.add_argument("--status", metavar="NAME", help="only runs with this status")
    parser.add_argument("--limit", type=int, metavar="N", help="only the newest N")
    add_runs_option(parser)
    add_json_option(parser)


def execute(args: argparse.Namespace) -> int:
    """Print a line per run."""
    if args.status not in (None, *_STATUSES):
        what = f"no run ever has the status {args.status!r}"
        raise ConfigError(Problem("--status", what, hint=suggest(args.status, _STATUSES)))
    summaries = [summary for summary in find_runs(args.runs_dir) if _is_wanted(summary, args)]
    if args.limit is not None:
        summaries = summaries[-args.limit :] if args.limit > 0 else []
    if args.json:
        print_json([_to_json(summary) for summary in summaries])
    elif summaries:
        print(format_table(*_without_empty(_HEADER, [_row(summary) for summary in summaries])))
        name = name_run(summaries[-1].path)
        print(f"\n`{command()} show {name}` shows one of them, `last` is the newest")
    else:
        print(f"no such runs below {args.runs_dir}; `{command()} run FILE` makes one")
    return 0


def _is_wanted(summary: RunSummary, args: argparse.Namespace) -> bool:
    if args.status is not None and summary.status != args.status:
        return False
    text = f"{summary.path} {summary.tag}"
    return all(word in text for word in args.words)


def _without_empty(
    header: tuple[str, ...], rows: list[tuple[str, ...]]
) -> tuple[list[str], list[list[str]]]:
    """The table without the columns of what hardly any run has, if none of these has it."""
    kept = [i for i, name in enumerate(header) if name not in _RARE or any(row[i] for row in rows)]
    return [header[i] for i in kept], [[row[i] for i in kept] for row in rows]


def _row(summary: RunSummary) -> tuple[str, ...]:
    seconds, facts = _seconds(summary), read_run(summary.path).run
    resumed = summary.attempt - summary.rollbacks
    return (
        summary.id,
        summary.project,
        summary.tag,
        str(facts.get("variant") or ""),
        summary.runner,
        summary.status,
        summary.reason if summary.reason != summary.status else "",
        f"{resumed}x" if resumed > 0 else "",
        str(summary.step),
        "" if seconds is None else format_seconds(seconds),
        format_value(summary.result.get("best")),
        _outcome(summary, facts.get("monitor")),
    )


def _outcome(summary: RunSummary, monitor: object) -> str:
    """What came of a run: its error, its figures, why it stopped, or what is damaged.

    The metric that decides comes first.
    """
    if error := summary.result.get("exception_type"):
        message = str(summary.result.get("message") or "")
        return f"{error}: {message}".partition("\n")[0]
    metrics = _metrics(summary)
    names = [name for name in metrics if name == monitor or not name.startswith("train/")]
    names.sort(key=lambda name: name != monitor)
    figures = [f"{name} {format_value(metrics[name])}" for name in names]
    return "  ".join(figures) or summary.reason or "; ".join(summary.damage)


def _metrics(summary: RunSummary) -> dict[str, object]:
    metrics = summary.result.get("metrics")
    return metrics if isinstance(metrics, dict) else {}


def _seconds(summary: RunSummary) -> float | None:
    trained = summary.result.get("seconds")
    if summary.attempt and isinstance(trained, int | float):  # without the time between attempts
        return float(trained)
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
        "attempt",
        "reason",
        "step",
        "epoch",
        "started",
        "ended",
    )
    return {
        "path": str(summary.path),
        "variant": read_run(summary.path).run.get("variant"),
        **{name: getattr(summary, name) for name in names},
        "best": summary.result.get("best"),
        "metrics": _metrics(summary),
        "damage": list(summary.damage),
    }
