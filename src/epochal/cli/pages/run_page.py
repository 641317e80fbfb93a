"""The page of ``epochal show``: status, settings, metrics, times and disk usage of a run."""

from __future__ import annotations

import math
import re
from contextlib import suppress
from typing import TYPE_CHECKING

from epochal.cli.draw.chart import format_sparkline
from epochal.cli.draw.progress import Progress
from epochal.cli.draw.text_table import format_table, shorten
from epochal.errors import DIVERGED, RecordError
from epochal.records.compare.replicate_groups import RelatedRuns, find_related_runs
from epochal.records.folder.crash import CRASH_FILE_NAME, find_crash
from epochal.records.folder.disk_usage import measure_disk_usage
from epochal.records.folder.experiment_facts import find_unnamed_class
from epochal.records.folder.folder import CHECKPOINTS_DIR, read_parent
from epochal.records.folder.labels import read_labels
from epochal.records.folder.provenance import format_origin
from epochal.records.folder.reader import (
    Point,
    desc_of,
    describe_unwritten_checkpoints,
    find_monitor,
    read_time_spent,
    seconds_of,
    step_of,
    tag_of,
)
from epochal.records.folder.resume_command import find_resume_command
from epochal.records.index.replicates import estimate_mean
from epochal.records.layout.attempts import ROLLBACK
from epochal.records.metrics.points import SMALL_FILE_BYTES
from epochal.records.metrics.summary import SeriesSummary, summarise_series
from epochal.records.metrics.time_spent import (
    compute_time_shares,
    describe_attempts,
    describe_device_time,
    format_precise_time,
    suggest_speedup,
)
from epochal.records.query.syntax import format_moment
from epochal.registry.project_file import name_run
from epochal.text.command import epochal_command
from epochal.text.formatting import format_bytes, format_count, format_seconds, format_value
from epochal.text.terminal import display_width, terminal_width

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from epochal.records import RunRecord

_MAX_SETTINGS = 40
_MAX_CHILDREN = 8
_SPARK_WIDTH = 24
_MIN_SPARK_WIDTH = 8
_MAX_VALUE_WIDTH = 48
_UNFINISHED = ("lost", "interrupted", "preempted")
_WITHOUT_STEPS = ("test", "predict")
_EXPANDED = re.compile(r"(^|[/\\])config[/\\]expanded\.\w+$")
_KINDS = {
    "retried": "retry of {}",
    "rerun": "repeats {} with changes",
    "trial": "trial of {}",
    "fold": "fold of {}",
    "weights": "initialised with the weights of {}",
    "test": "test of {}",
    "predict": "prediction of {}",
}


def describe_run(record: RunRecord, root: Path) -> Iterator[str]:
    """The lines about a run; related runs are searched below ``root``."""
    yield from _describe_head(record)
    with Progress() as progress:
        relatives = find_related_runs(record, root, progress)
    yield from _describe_related_runs(record, relatives)
    yield from _describe_error(record)
    yield from _describe_next(record)
    yield from (f"  damage   {line}" for line in record.damage)
    yield from _describe_folds(record)
    yield from _describe_settings(record)
    yield from _describe_metrics(record)
    yield from _describe_times(record)
    yield from _describe_disk(record)
    yield ""
    yield "  --explain KEY shows where a value was set; --plot [NAME] plots metrics;"
    yield "  --config and --log print the config and the log"


def _describe_head(record: RunRecord) -> Iterator[str]:
    # A damaged record may contain anything: check types before use.
    summary, run = record.summary, record.run
    variant = f", variant {run['variant']}" if run.get("variant") else ""
    yield f"{tag_of(record)}{variant}  ({summary.id})"
    purpose, _, more = desc_of(record).partition("\n\n")
    yield from (f"  {line}" for line in purpose.splitlines())
    if more:
        yield f"  ... `epochal describe {summary.id}` shows the rest"
    yield f"  folder   {record.path}"
    if run.get("runner"):
        yield f"  runner   {run['runner']}"
    yield f"  status   {', '.join(_status(record))}"
    marks = read_labels(record.path)
    if marks.labels:
        yield f"  labels   {marks.text}"
    if marks.is_archived:
        yield "  archived lists hide it, unless --archived is given"
    if summary.status == "lost":
        yield from (f"           {line}" for line in _explain_loss(record))
    yield from _describe_best(record)
    if unwritten := describe_unwritten_checkpoints(record):
        yield f"  unsaved  {unwritten}"
    yield from _describe_attempts(record)
    yield from _describe_stages(record)
    if started := format_moment(summary.started):
        yield f"  started  {started}"
    if (seconds := seconds_of(record)) is not None:
        yield f"  time     {format_seconds(seconds)}"
    if isinstance(device := run.get("device"), dict):
        text = f"{device.get('device')} {device.get('name') or ''}".rstrip()
        count = device.get("processes")
        yield f"  device   {text}" + (f", {count} processes that share each batch" if count else "")
    for title, text in zip(("system", "", ""), _describe_system(record), strict=False):
        yield f"  {title:9}{text}"
    if isinstance(given := run.get("given"), list) and given:
        yield f"  given    {', '.join(map(str, given))} (passed in Python, not in the config)"
    if isinstance(own := run.get("experiment"), dict):
        steps = own.get("steps")
        steps = ", ".join(map(str, steps)) if isinstance(steps, list) else ""
        yield f"  class    {own.get('class')}" + (f" (overrides {steps})" if steps else "")
    if run.get("command"):
        yield f"  command  {run['command']}"


def _explain_loss(record: RunRecord) -> Iterator[str]:
    crash = find_crash(record.path)
    if crash is None:
        yield "its process ended without a result: killed, or the machine went down"
        return
    yield f"its process crashed: {crash.fault}"
    yield f"in {crash.lines}"
    yield f"native code that is called there crashed; the whole stack: {CRASH_FILE_NAME} in logs"


def _describe_system(record: RunRecord) -> Iterator[str]:
    """Mean and peak of system figures: of the machine, of this run, and of its GPU."""
    found = record.system.summarise()
    device = record.run.get("device")
    kind, _, index = str(device.get("device") if isinstance(device, dict) else "").partition(":")
    gpu = f"system/gpu{index or 0}" if kind == "cuda" else ""
    groups: dict[str, dict[str, tuple[str, Callable[[float], str]]]] = {
        "machine": {
            "CPU ": ("system/cpu", "{:.0f}%".format),
            "memory ": ("system/memory", format_bytes),
        },
        "this run": {
            "": ("system/process/cores", "{:.1f} cores".format),
            "memory ": ("system/process/memory", format_bytes),
        },
        "GPU": {
            "": (f"{gpu}/use", "{:.0f}%".format),
            "memory ": (f"{gpu}/memory", format_bytes),
            "power ": (f"{gpu}/power", "{:.0f} W".format),
            "temperature ": (f"{gpu}/temperature", "{:.0f} °C".format),
        },
    }
    for title, figures in groups.items():
        known = [
            (word, *found[name], show) for word, (name, show) in figures.items() if name in found
        ]
        if known:
            texts = (f"{word}{show(mean)} (peak {show(peak)})" for word, mean, peak, show in known)
            yield f"{title}: {', '.join(texts)}"


def _status(record: RunRecord) -> Iterator[str]:
    """Status, reason and position; runs without steps have no position."""
    summary = record.summary
    yield summary.status
    if record.run.get("fast") is True:
        yield "only a few batches of each split (--fast)"
    if summary.reason and summary.reason != summary.status:
        yield summary.reason
    step = step_of(record)
    if step or summary.runner not in _WITHOUT_STEPS:
        if step == summary.step:  # a killed run may have logged later steps, but not their epoch
            yield f"epoch {summary.epoch}"
        yield f"step {step}"


def _describe_next(record: RunRecord) -> Iterator[str]:
    """The next command for a run that did not finish."""
    summary, name = record.summary, name_run(record.path)
    if summary.status in _UNFINISHED and any((record.path / CHECKPOINTS_DIR).glob("*")):
        if record.run.get("given") or find_unnamed_class(record.run) is not None:
            yield f"  next     run its script with choices={{'resume': {str(record.path)!r}}}"
        else:
            yield f"  next     `{epochal_command()} resume {name}` continues it"
    elif summary.status == DIVERGED and (command := find_resume_command(record.path)):
        yield f"  next     `{command}` resumes from the last finite weights"
    elif summary.status == "failed":
        yield f"  next     `{epochal_command()} show {name} --log` shows the traceback"


def _describe_best(record: RunRecord) -> Iterator[str]:
    monitor = record.run.get("monitor")
    if not isinstance(monitor, str) or monitor not in record.metric_names():
        return
    if record.folds:  # its metrics are results of folds, its best value their mean
        if isinstance(mean := record.result.get("best"), int | float):
            yield f"  best     {monitor} {format_value(mean)}, the mean over its folds"
        return
    with suppress(RecordError):
        best = _find_ranked(record, monitor)
        if best is None and record.summary.status != DIVERGED:
            best = record.best(monitor, find_monitor(record)[1] or "min")
        if best is not None and math.isfinite(best.value):
            yield f"  best     {monitor} {format_value(best.value)} at step {best.step:,}"


def _find_ranked(record: RunRecord, monitor: str) -> Point | None:
    """The point that the run itself ranked best; diverged weights are never ranked."""
    best = record.result.get("best")
    points = (Point(*one) for one in zip(*map(list, record.series(monitor)), strict=True))
    return next((point for point in points if point.value == best), None)


def _describe_attempts(record: RunRecord) -> Iterator[str]:
    for one in record.attempts:
        if one.attempt:
            verb = "rolled back to" if one.cause == ROLLBACK else f"{one.cause} from".strip()
            place = f"{verb} {one.checkpoint}, step {one.step}" if one.checkpoint else one.cause
            place += " from the start, step 0" if one.kept_points == 0 else ""
            when = format_moment(one.started)
            yield f"  attempt  {one.attempt}: {', '.join(filter(None, [place, when]))}"
            yield from (f"           {text}" for text in one.changed)


def _describe_stages(record: RunRecord) -> Iterator[str]:
    begun = [one for one in record.events if one.get("kind") == "stage_start"]
    steps = {one.get("name"): one.get("step") for one in begun}
    if steps:
        yield f"  stages   {', '.join(f'{name} from step {step}' for name, step in steps.items())}"


def _describe_related_runs(record: RunRecord, relatives: RelatedRuns) -> Iterator[str]:
    trial = record.run.get("trial")
    if isinstance(trial, dict):
        yield f"  trial    {_describe_trial(trial)}"
    parent = read_parent(record.run)
    if parent is not None and not (parent.kind == "trial" and trial):
        yield f"  parent   {_KINDS[parent.kind].format(parent.run)}"
    for child in relatives.children[:_MAX_CHILDREN]:
        best = f", best {format_value(child.best)}" if child.best is not None else ""
        yield f"  child    {child.run} ({child.kind}, {child.status}{best})"
    if len(relatives.children) > _MAX_CHILDREN:
        yield f"           and {len(relatives.children) - _MAX_CHILDREN} more"
    if relatives.replicates:
        seeds = ", ".join(str(one.seed) for one in relatives.replicates)
        mean = estimate_mean(one.best for one in relatives.replicates if one.best is not None)
        worth = f": best {mean}" if math.isfinite(mean.half_width) else ""
        yield f"  seeds    {len(relatives.replicates)} runs differ only by seed ({seeds}){worth}"


def _describe_trial(trial: dict[str, object]) -> str:
    values = trial.get("values")
    shown = values.items() if isinstance(values, dict) else ()
    repeat = f", repeat {trial['repeat']}" if trial.get("repeat") else ""
    text = ", ".join(f"{key}={format_value(value)}" for key, value in shown)
    return f"{trial.get('number')} of the sweep {trial.get('sweep')}{repeat} ({text})"


def _describe_error(record: RunRecord) -> Iterator[str]:
    kind, message = record.result.get("exception_type"), str(record.result.get("message") or "")
    if kind or message:
        first, *others = message.splitlines() or [""]
        yield f"  error    {kind}: {first}" if kind else f"  error    {first}"
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
    """Values of a result; empty if the record is damaged."""
    found = record.result.get(name)
    return found if isinstance(found, dict) else {}


def _describe_settings(record: RunRecord) -> Iterator[str]:
    """The settings of this run; defaults and settings of its parent are only counted."""
    rows, defaults, inherited = [], 0, 0
    for key, origins in record.provenance.items():
        newest = origins[0] if isinstance(origins, list) and origins else None
        if not isinstance(newest, dict):  # the file may be damaged
            continue
        if newest.get("layer") == "default":
            defaults += 1
        elif _EXPANDED.search(str(newest.get("source"))):
            inherited += 1
        else:
            rows.append((f"  {key}", _cut(newest.get("value")), format_origin(newest)))
    if not rows and not inherited:
        return
    yield ""
    table: list[tuple[str, ...]] = [("  setting", "value", "set in"), *rows[:_MAX_SETTINGS]]
    if _room_beside([row[:2] for row in table]) < _MIN_SPARK_WIDTH:
        table = [row[:2] for row in table]
    yield format_table(table[0], table[1:])
    if len(rows) > _MAX_SETTINGS:
        yield f"  and {len(rows) - _MAX_SETTINGS} more"
    if inherited:
        yield f"  and {inherited} from its parent run; --config prints them"
    elif defaults:
        yield f"  and {format_count(defaults, 'default')}; --config prints them"


def _cut(value: object) -> str:
    text = " ".join(format_value(value).split()) if value is not None else "null"
    return shorten(text, _MAX_VALUE_WIDTH)


def _describe_metrics(record: RunRecord) -> Iterator[str]:
    from epochal.records.metrics.curve_cache import build_curve_cache

    if record.folds:  # its metrics are in the table of folds
        return
    monitor = record.run.get("monitor")
    with Progress() as progress:
        build_curve_cache(record.path, progress)
    found = summarise_series(record.path)
    names = sorted(found, key=lambda name: (name != monitor, name))
    if not names:
        return
    rows = [(f"  {name}", *_figures(found[name])) for name in names]
    rows.insert(0, ("  metric", "last", "lowest", "highest", "points"))
    # A curve says more than the extremes, so a narrow terminal drops the extremes first.
    tables = [[row[:columns] for row in rows] for columns in (5, 4, 2)]
    table = next((one for one in tables if _room_beside(one) >= _MIN_SPARK_WIDTH), tables[-1])
    width = max(_MIN_SPARK_WIDTH, min(_SPARK_WIDTH, _room_beside(table)))
    curves = ("curve", *(_spark(record, name, width) for name in names))
    lines = [(*row, curve) for row, curve in zip(table, curves, strict=True)]
    yield ""
    yield format_table(lines[0], lines[1:])


def _figures(one: SeriesSummary) -> tuple[str, ...]:
    numbers = (format_value(value) for value in (one.last, one.low, one.high))
    return (*numbers, str(one.count))


def _room_beside(rows: Sequence[Sequence[str]]) -> int:
    """The width left for one more column."""
    widths = [max(map(display_width, column)) for column in zip(*rows, strict=True)]
    return terminal_width() - sum(widths) - 2 * len(widths)


def _spark(record: RunRecord, name: str, width: int) -> str:
    from epochal.records.metrics.curve_cache import zoom

    try:
        if (record.path / "metrics.bin").stat().st_size > SMALL_FILE_BYTES:
            part = zoom(record.path, name, buckets=width)
            return format_sparkline(part.steps.tolist(), part.mean.tolist(), width=width)
        steps, values = record.series(name)
    except (OSError, RecordError):
        return ""
    return format_sparkline(steps.tolist(), values.tolist(), width=width)


def _describe_times(record: RunRecord) -> Iterator[str]:
    spent = read_time_spent(record)
    rows = [
        (f"  {one.name}", f"{one.share:5.0%}", format_precise_time(one.seconds), one.note)
        for one in compute_time_shares(spent.times)
    ]
    if rows:
        table: list[tuple[str, ...]] = [("  time", "share", "in all", ""), *rows]
        if _room_beside(table) < 0:
            table = [row[:3] for row in table]
        yield ""
        yield format_table(table[0], table[1:])
        attempts = describe_attempts(spent, len(record.attempts))
        yield from ([f"  {attempts}"] if attempts else [])
        device = describe_device_time(record.device_time)
        yield from ([f"  the device: {device}"] if device else [])
        yield f"  {suggest_speedup(spent.times, record.device_time)}"


def _describe_disk(record: RunRecord) -> Iterator[str]:
    parts = measure_disk_usage(record.path)
    rows = [
        (
            f"  {one.name}",
            format_bytes(one.num_bytes),
            format_count(one.num_files, "file"),
            f"{format_bytes(one.shared_bytes)} shared" if one.shared_bytes else "",
        )
        for one in parts
    ]
    if not rows:
        return
    total = sum(one.num_bytes for one in parts)
    count = format_count(sum(one.num_files for one in parts), "file")
    yield ""
    table = [("  disk", "size", "", ""), *rows, ("  in all", format_bytes(total), count, "")]
    columns = 4 if _room_beside(table) >= 0 else 3
    yield format_table(table[0][:columns], [row[:columns] for row in table[1:]])
