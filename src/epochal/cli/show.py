"""``epochal show``: one run, or where one of its values came from."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from epochal.cli.table import format_table
from epochal.cli.words import add_json_option, add_run_word, print_json
from epochal.experiment.figures import format_seconds, format_value
from epochal.records import RunRecord, explain, read_run
from epochal.records.times import advise, describe_device_time, format_time, share_out

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator
    from pathlib import Path


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
        text = explain(record, args.explain)  # complains about a key that there is not
        if args.json:
            print_json(_origins(record, args.explain))
        else:
            print(text)
    elif args.config:
        _print_files(sorted((record.path / "config").glob("expanded.*")), "expanded config")
    elif args.log:
        logs = (path for path in (record.path / "logs").rglob("*") if path.is_file())
        _print_files(sorted(logs), "log")
    elif args.json:
        print_json(_to_json(record))
    else:
        print("\n".join(_describe(record)))
    return 0


def _print_files(paths: list[Path], what: str) -> None:
    for path in paths:
        print(path.read_text(encoding="utf-8", errors="replace").rstrip())
    if not paths:
        print(f"this run has no {what}", file=sys.stderr)


def _origins(record: RunRecord, key: str) -> dict[str, object]:
    """Who set ``key``, or every value below it, newest first."""
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
        "folds": [str(fold.path) for fold in record.folds],
        "damage": list(record.damage),
    }


def _describe(record: RunRecord) -> Iterator[str]:
    summary, run = record.summary, record.run
    variant = f", variant {run['variant']}" if run.get("variant") else ""
    yield f"{summary.tag}{variant}  ({summary.id})"
    if run.get("desc"):
        yield f"  {run['desc']}"
    yield f"  folder   {record.path}"
    did = str(run.get("runner") or "")
    yield from ([f"  runner   {did}"] if did else [])
    reason = f", {summary.reason}" if summary.reason else ""
    yield f"  status   {summary.status}{reason}, epoch {summary.epoch}, step {summary.step}"
    yield from _describe_attempts(record)
    yield from _describe_stages(record)
    # A damaged record may hold anything: only what has the right type is shown.
    if isinstance(seconds := record.result.get("seconds"), int | float):
        yield f"  time     {format_seconds(seconds)}"
    if isinstance(device := run.get("device"), dict):
        yield f"  device   {device.get('device')} {device.get('name') or ''}".rstrip()
    if isinstance(given := run.get("given"), list) and given:
        yield f"  given    {', '.join(map(str, given))} (came from Python, not from the config)"
    if run.get("command"):
        yield f"  command  {run['command']}"
    yield from _describe_error(record)
    yield from (f"  damage   {line}" for line in record.damage)
    yield from _describe_folds(record)
    yield from _describe_metrics(record)
    yield from _describe_times(record)
    yield ""
    yield "  --explain KEY says where a value came from; --config and --log print more"


def _describe_attempts(record: RunRecord) -> Iterator[str]:
    for one in record.attempts:
        if one.checkpoint:
            verb = "went back to" if one.cause == "rollback" else "from"
            at = f"{one.checkpoint}, step {one.step}, {one.started}"
            yield f"  attempt  {one.attempt}: {verb} {at}"
            yield from (f"           {text}" for text in (*one.changed,))


def _describe_stages(record: RunRecord) -> Iterator[str]:
    steps = {one.get("name"): one.get("step") for one in record.events if _is_stage(one)}
    if steps:
        yield f"  stages   {', '.join(f'{name} from step {step}' for name, step in steps.items())}"


def _is_stage(event: dict[str, object]) -> bool:
    return event.get("kind") == "stage_start"


def _describe_error(record: RunRecord) -> Iterator[str]:
    if kind := record.result.get("exception_type"):
        first, *others = str(record.result.get("message") or "").splitlines() or [""]
        yield f"  error    {kind}: {first}"
        yield from (f"           {line}" for line in others)


def _describe_folds(record: RunRecord) -> Iterator[str]:
    rows, means = [], _numbers(record, "metrics")
    for fold in record.folds:
        metrics = _numbers(fold, "metrics")
        figures = [format_value(metrics.get(name)) for name in means]
        best = format_value(fold.result.get("best"))
        rows.append((f"  {fold.path.name}", fold.summary.status, best, *figures))
    if not rows:
        return
    spread = _numbers(record, "spread")
    for title, values in (("  mean", means), ("  spread", spread)) if spread else ():
        best = format_value(record.result.get("best") if values is means else spread.get("best"))
        rows.append((title, "", best, *(format_value(values.get(name)) for name in means)))
    yield ""
    yield format_table(("  fold", "status", "best", *means), rows)


def _numbers(record: RunRecord, name: str) -> dict[str, float]:
    """A mapping of a result without what is in no table; a damaged record may hold anything."""
    found = record.result.get(name)
    values = found if isinstance(found, dict) else {}
    return {key: value for key, value in values.items() if not key.startswith("train/epoch/")}


def _describe_metrics(record: RunRecord) -> Iterator[str]:
    rows = []
    monitor = record.run.get("monitor")
    for name in sorted(record.metric_names(), key=lambda name: name != monitor):
        steps, values = record.series(name)
        points = values.tolist()
        numbers = [value for value in points if value == value] or points
        if not points:
            continue
        figures = (points[-1], min(numbers), max(numbers))
        rows.append((f"  {name}", *(format_value(value) for value in figures), str(len(steps))))
    if rows:
        yield ""
        yield format_table(("  metric", "last", "lowest", "highest", "points"), rows)


def _describe_times(record: RunRecord) -> Iterator[str]:
    rows = [
        (f"  {one.name}", f"{one.share:5.0%}", format_time(one.seconds))
        for one in share_out(record.times)
    ]
    if rows:
        yield ""
        yield format_table(("  time", "share", "in all"), rows)
        device = describe_device_time(record.device_time)
        yield from ([f"  the device: {device}"] if device else [])
        yield f"  {advise(record.times, record.device_time)}"
