"""The summary after a successful run: results, folder, next commands."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from epochal import durable
from epochal.checkpoint.weights import FINAL_WEIGHTS_FILE
from epochal.engine.result_page import format_spread
from epochal.experiment.record.failure import describe_progress
from epochal.records.folder.experiment_facts import find_unnamed_class
from epochal.records.folder.folder import CHECKPOINTS_DIR
from epochal.records.folder.reader import describe_unwritten_checkpoints, read_folder
from epochal.records.metrics.points import is_probe
from epochal.registry.project_file import name_run
from epochal.text.command import epochal_command
from epochal.text.formatting import format_count, format_rate, format_value
from epochal.text.terminal import wrap

if TYPE_CHECKING:
    from epochal.engine import RunResult


FINAL_WEIGHTS = Path(CHECKPOINTS_DIR, FINAL_WEIGHTS_FILE)
_COPIED = ("  record ", "  next ", "    ")
_QUIET = ("warning", "error", "critical")


def show_success(result: RunResult) -> None:
    """Print the summary of a successful run, unless ``log.level`` wants warnings only."""
    if result.ok and result.config.get("log", {}).get("level") not in _QUIET:
        for line in describe_success(result):
            is_copied = line.startswith(_COPIED)  # a path or a command stays one line
            print("\n".join([line] if is_copied else wrap(line)))  # noqa: T201 - the only place


def describe_success(result: RunResult) -> list[str]:
    """The lines of the summary."""
    folds = result.value if result.spread else []
    length = f"{format_count(len(folds), 'fold')}, " * bool(folds) + describe_progress(result)
    lines = [f"{result.status} ({result.reason}): {length}"]
    lines += [f"  {line}" for line in result.message.splitlines()]
    figures = [
        f"{name} {format_value(value)}{format_spread(result, name)}"
        for name, value in result.metrics.items()
        if not is_probe(name)
    ]
    if figures:
        lines.append(f"  results  {'  '.join(figures)}")
    if result.weights:
        lines.append(f"  weights  {result.weights}")
    if result.best is not None:
        monitor = result.config.get("monitor")
        name = monitor.get("metric") if isinstance(monitor, Mapping) else monitor
        name = f" ({name})" if name else ""
        lines.append(f"  best     {format_value(result.best)}{format_spread(result, 'best')}{name}")
        if folds:
            lines.append(f"  folds    {'  '.join(format_value(one.best) for one in folds)}")
    if result.dir is not None:
        unwritten = describe_unwritten_checkpoints(read_folder(result.dir))
        lines += [f"  unsaved  {unwritten}"] * bool(unwritten)
    if result.speed:
        speeds = [f"{format_rate(value)} {name}/s" for name, value in result.speed.items()]
        lines.append(f"  speed    {'  '.join(speeds)}")
    if result.dir is not None:
        lines.append(f"  record   {result.dir}")
        name = name_run(result.dir)
        lines.append(f"  next     {epochal_command()} show {name}")
        if folds:
            name = str(result.dir / "folds" / "1")
        if _can_be_tested(result.dir / "folds" / "1" if folds else result.dir):
            lines.append(f"           {epochal_command()} test {name}")
    return lines


def _can_be_tested(folder: Path) -> bool:
    """Whether ``epochal test`` finds weights, test data, and every part in the config."""
    facts = durable.find_object(folder / "run.json")
    is_given = {"task", "model", "data"} & {*facts.get("given", ())}
    is_described = not is_given and find_unnamed_class(facts) is None
    has_data = "test" in facts.get("splits", ())
    return is_described and has_data and (folder / FINAL_WEIGHTS).is_file()
