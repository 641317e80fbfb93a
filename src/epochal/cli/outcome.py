"""What a person reads when a run has come to its end: results, record, what to type next."""

from __future__ import annotations

from typing import TYPE_CHECKING

from epochal.experiment.failure import describe_length
from epochal.experiment.figures import format_value
from epochal.experiment.invocation import command, name_run

if TYPE_CHECKING:
    from epochal.engine import RunResult


def print_outcome(result: RunResult) -> None:
    """Print how a run ended well; a failure has been told already by who ran it."""
    if result.ok:
        print("\n".join(describe_success(result)))


def describe_success(result: RunResult) -> list[str]:
    """The lines that follow a run which came to an end of its own."""
    lines = [f"{result.status} ({result.reason}): {describe_length(result)}"]
    shown = {name: value for name, value in result.metrics.items() if "train/epoch/" not in name}
    if shown:
        figures = "  ".join(f"{name} {format_value(value)}" for name, value in shown.items())
        lines.append(f"  results  {figures}")
    if result.best is not None:
        monitor = result.config.get("monitor")
        name = f" ({monitor})" if isinstance(monitor, str) else ""
        lines.append(f"  best     {format_value(result.best)}{name}")
    if result.dir is not None:
        lines.append(f"  record   {result.dir}")
        name = name_run(result.dir)
        lines.append(f"  next     {command()} show {name}")
        if result.steps:
            lines.append(f"           {command()} test {name}")
    return lines
