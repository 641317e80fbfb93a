"""What a person reads when a run has ended: how, where its record is, what to type next."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from epochal.cli.frame import framed
from epochal.cli.table import format_seconds, format_value
from epochal.errors import ConfigError

if TYPE_CHECKING:
    from epochal.engine import RunResult

USER_CODE_RAISED = 1
_FRAME_START = re.compile(r'^  File "(.+?)", line \d+', re.MULTILINE)
_INSIDE = (str(Path(__file__).parents[1]), "site-packages", "<frozen")


def print_outcome(result: RunResult) -> None:
    """Print how a run ended: results to standard output, errors framed to standard error."""
    if result.ok:
        print("\n".join(describe_success(result)))
    elif result.exit_code in (ConfigError.exit_code, 66) and result.dir is None:
        print(result.message, file=sys.stderr)  # one list of mistakes, as `epochal check` shows it
    else:
        sys.stdout.flush()
        title = f"run {result.status}" + (
            f": {result.exception_type}" * bool(result.exception_type)
        )
        print(framed(title, "\n".join(describe_failure(result))), file=sys.stderr)


def describe_success(result: RunResult) -> list[str]:
    """The lines that follow a run which came to an end of its own."""
    counted = f"{result.epochs} epochs, {result.steps} steps, " if result.steps else ""
    lines = [f"{result.status} ({result.reason}): {counted}{format_seconds(result.seconds)}"]
    shown = {name: value for name, value in result.metrics.items() if "train/epoch/" not in name}
    if shown:
        figures = "  ".join(f"{name} {format_value(value)}" for name, value in shown.items())
        lines.append(f"  results  {figures}")
    if result.best is not None:
        lines.append(f"  best     {format_value(result.best)}")
    if result.dir is not None:
        lines.append(f"  record   {result.dir}")
        lines.append(f"  next     epochal show {result.dir.name}")
        if result.steps:
            lines.append(f"           epochal test {result.dir.name}")
    return lines


def describe_failure(result: RunResult) -> list[str]:
    """The lines inside the frame of a run that failed or was interrupted."""
    if result.status == "interrupted":
        lines = [f"stopped by Ctrl-C after {result.epochs} epochs, {result.steps} steps"]
    else:
        lines = result.message.splitlines() or [result.reason]
    if result.exit_code == USER_CODE_RAISED and result.traceback:
        lines += ["", *_own_frames(result.traceback)]
    if result.dir is not None:
        lines += ["", f"record: {result.dir}"]
        if result.exit_code == USER_CODE_RAISED:
            lines.append(f"full traceback: epochal show {result.dir.name} --log")
    return lines


def _own_frames(traceback: str) -> list[str]:
    """The last lines of a traceback that lie in the user's code; the last of all otherwise."""
    starts = [match.start() for match in _FRAME_START.finditer(traceback)]
    blocks = [traceback[a:b] for a, b in zip(starts, [*starts[1:], None], strict=True)]
    own = [block for block in blocks if not any(part in block.splitlines()[0] for part in _INSIDE)]
    kept = []
    for block in (own or blocks)[-3:]:
        kept += [line for line in block.splitlines() if line.startswith("  ")][:2]
    return kept
