"""``epochal show``: one run, the origin of a setting, or plots of metrics."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

from epochal.cli.arguments import add_json_option, add_runs_dir_option, print_json
from epochal.cli.draw.progress import Progress
from epochal.errors import ConfigError, Problem
from epochal.records import RunRecord, explain, read_run
from epochal.records.folder.disk_usage import measure_disk_usage
from epochal.text.command import epochal_command
from epochal.text.escape import escape_control
from epochal.text.terminal import print_wrapped

if TYPE_CHECKING:
    import argparse


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments and options."""
    text = "folder of a run, its id or part of the id, or `last`; with --plot also several runs"
    parser.add_argument("words", nargs="+", metavar="RUN", help=text)
    add_runs_dir_option(parser)
    parser.add_argument("--explain", metavar="KEY", help="show where a config value was set")
    parser.add_argument("--config", action="store_true", help="print the expanded config")
    parser.add_argument("--log", action="store_true", help="print the text log")
    parser.add_argument(
        "--plot",
        nargs="*",
        metavar="NAME",
        help="plot metrics, such as val/loss or 'train/*' (default: the monitored metric)",
    )
    parser.add_argument("--png", type=Path, metavar="FILE", help="save the plot as a PNG file")
    add_json_option(parser)


def execute(args: argparse.Namespace) -> int:
    """Print the run, or the part of it that the options select."""
    records = [read_run(word, args.runs_dir) for word in dict.fromkeys(args.words)]
    if args.plot is not None or args.png is not None:
        _plot(records, args.plot or [], args.png)
        return 0
    if len(records) > 1:
        what = f"show takes one run, got {' '.join(args.words)!r}"
        hint = f"`{epochal_command()} diff A B` compares them, --plot plots them together"
        raise ConfigError(Problem("command line", what, hint=hint))
    (record,) = records
    if args.explain is not None:
        text = explain(record, args.explain)  # raises if the key is unknown
        if args.json:
            print_json(_origins(record, args.explain))
        else:
            print(escape_control(text))
    elif args.config:
        paths = sorted((record.path / "config").glob("expanded.*"))
        # A config written to a file must stay the same config.
        _print_files(paths, "expanded config", is_exact=not sys.stdout.isatty())
    elif args.log:
        logs = (path for path in (record.path / "logs").rglob("*") if path.is_file())
        _print_files(sorted(logs), "log")
    elif args.json:
        print_json(_to_json(record))
    else:
        from epochal.cli.pages.run_page import describe_run

        print_wrapped(describe_run(record, args.runs_dir))
    return 0


def _plot(records: list[RunRecord], names: list[str], picture: Path | None) -> None:
    from epochal.cli.draw.chart import render_chart
    from epochal.cli.draw.png import save_png
    from epochal.cli.pages.curves import chart_curves

    with Progress() as progress:
        chart = chart_curves(records, names, progress)
    if picture is None:
        print("\n".join(render_chart(chart)))
    else:
        save_png(chart, picture)
        print(f"written to {picture}")


def _print_files(paths: list[Path], what: str, *, is_exact: bool = False) -> None:
    for path in paths:
        text = path.read_text(encoding="utf-8", errors="replace").rstrip()
        print(text if is_exact else escape_control(text))
    if not paths:
        print(f"this run has no {what}", file=sys.stderr)


def _origins(record: RunRecord, key: str) -> dict[str, object]:
    """The origins of ``key`` and of every key below it, newest first."""
    return {
        known: origins
        for known, origins in record.provenance.items()
        if known == key or known.startswith(f"{key}.")
    }


def _to_json(record: RunRecord) -> dict[str, object]:
    return {
        "path": str(record.path),
        "run": dict(record.run),
        "status": dict(record.status),
        "result": dict(record.result),
        "config": dict(record.expanded),
        "metrics": record.metric_names(),
        "times": record.times,
        "disk": {one.name: one.num_bytes for one in measure_disk_usage(record.path)},
        "folds": [str(fold.path) for fold in record.folds],
        "damage": list(record.damage),
    }
