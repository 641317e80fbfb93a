"""The summary after a successful run: results, folder, next commands."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from epochal.experiment.record.failure import describe_progress
from epochal.records.find import name_run
from epochal.records.metrics.points import is_epoch_mean
from epochal.text.command import epochal_command
from epochal.text.formatting import format_count, format_value

if TYPE_CHECKING:
    from epochal.engine import RunResult


def print_result(result: RunResult) -> None:
    """Print the summary of a successful run; failures have been printed already."""
    if result.ok:
        print("\n".join(describe_success(result)))


def describe_success(result: RunResult) -> list[str]:
    """The lines of the summary."""
    folds = result.value if result.spread else []
    length = f"{format_count(len(folds), 'fold')}, " * bool(folds) + describe_progress(result)
    lines = [f"{result.status} ({result.reason}): {length}"]
    shown = {name: value for name, value in result.metrics.items() if not is_epoch_mean(name)}
    if shown:
        figures = "  ".join(
            f"{name} {format_value(value)}{_spread(result, name)}" for name, value in shown.items()
        )
        lines.append(f"  results  {figures}")
    if result.weights:
        lines.append(f"  weights  {result.weights}")
    if result.best is not None:
        monitor = result.config.get("monitor")
        name = monitor.get("metric") if isinstance(monitor, Mapping) else monitor
        name = f" ({name})" if name else ""
        lines.append(f"  best     {format_value(result.best)}{_spread(result, 'best')}{name}")
        if folds:
            lines.append(f"  folds    {'  '.join(format_value(one.best) for one in folds)}")
    if result.dir is not None:
        lines.append(f"  record   {result.dir}")
        name = name_run(result.dir)
        lines.append(f"  next     {epochal_command()} show {name}")
        if folds:
            lines.append(f"           {epochal_command()} test {result.dir / 'folds' / '1'}")
        elif result.steps:
            lines.append(f"           {epochal_command()} test {name}")
    return lines


def _spread(result: RunResult, name: str) -> str:
    """The standard deviation over the folds, if there are folds."""
    return f" ± {format_value(result.spread[name])}" if name in result.spread else ""
