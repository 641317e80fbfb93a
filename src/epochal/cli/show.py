"""``epochal show``: one run, or where one of its values came from."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from epochal.cli.table import format_seconds, format_table, format_value
from epochal.cli.words import add_json_option, add_run_word, write_line
from epochal.records import RunRecord, explain, read_run

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the verb's words and options."""
    add_run_word(parser)
    parser.add_argument("--explain", metavar="KEY", help="say where a config value came from")
    parser.add_argument("--config", action="store_true", help="print the expanded config")
    parser.add_argument("--log", action="store_true", help="print the text log")
    add_json_option(parser)


def execute(args: argparse.Namespace) -> int:
    """Print what was asked for."""
    record = read_run(args.run, args.runs_dir)
    if args.explain is not None:
        write_line(explain(record, args.explain))
    elif args.config:
        for path in sorted((record.path / "config").glob("expanded.*")):
            write_line(path.read_text(encoding="utf-8").rstrip())
    elif args.log:
        for path in sorted((record.path / "logs").rglob("*.log")):
            write_line(path.read_text(encoding="utf-8", errors="replace").rstrip())
    elif args.json:
        print(json.dumps(_to_json(record), indent=2, default=str))
    else:
        write_line("\n".join(_describe(record)))
    return 0


def _to_json(record: RunRecord) -> dict[str, object]:
    return {
        "path": str(record.path),
        "run": dict(record.run),
        "status": dict(record.status),
        "result": dict(record.result),
        "config": dict(record.expanded),
        "metrics": record.metric_names(),
        "damage": list(record.damage),
    }


def _describe(record: RunRecord) -> Iterator[str]:
    summary, run = record.summary, record.run
    yield f"{summary.tag}  ({summary.id})"
    if run.get("desc"):
        yield f"  {run['desc']}"
    yield f"  folder   {record.path}"
    reason = f", {summary.reason}" if summary.reason else ""
    yield f"  status   {summary.status}{reason}, epoch {summary.epoch}, step {summary.step}"
    if seconds := record.result.get("seconds"):
        yield f"  time     {format_seconds(float(seconds))}"
    if device := run.get("device"):
        yield f"  device   {device.get('device')} {device.get('name') or ''}".rstrip()
    if run.get("command"):
        yield f"  command  {run['command']}"
    if message := record.result.get("message"):
        yield f"  error    {record.result.get('exception_type')}: {message}"
    yield from (f"  damage   {line}" for line in record.damage)
    yield from _describe_metrics(record)
    yield ""
    yield "  --explain KEY says where a value came from; --config and --log print more"


def _describe_metrics(record: RunRecord) -> Iterator[str]:
    rows = []
    for name in record.metric_names():
        steps, values = record.series(name)
        finite = [value for value in values.tolist() if value == value]
        if not finite:
            continue
        figures = (values[-1].item(), min(finite), max(finite))
        rows.append((f"  {name}", *(format_value(value) for value in figures), str(len(steps))))
    if rows:
        yield ""
        yield format_table(("  metric", "last", "lowest", "highest", "points"), rows)
