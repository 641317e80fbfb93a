"""TimeReport: shows where the time went at the end of training."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, final

from typing_extensions import override

from epochal.engine.interfaces.hook import Hook
from epochal.engine.run.engine_run import engine_run
from epochal.engine.run.speed import read_device_time, read_spent
from epochal.records.metrics.time_spent import (
    TimeShare,
    TimeSpent,
    compute_time_shares,
    describe_device_time,
    format_precise_time,
    suggest_speedup,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.table import Table

    from epochal.engine.interfaces.run import Run

logger = logging.getLogger(__name__)

_BAR_WIDTH = 24
_MIN_COLUMNS = 70  # of a terminal, to show bars beside names, numbers and notes


@final
class TimeReport(Hook):
    """Shows the share of each part in the run's time, and advice to make it faster.

    Only for runs that trained. It comes last, so that it includes saving at the end.
    """

    priority = 10_000

    @override
    def run_end(self, run: Run) -> None:
        if run.step == run.first_step:
            return
        spent, device_time = read_spent(engine_run(run)), read_device_time(engine_run(run))
        shares, advice = compute_time_shares(spent.times), suggest_speedup(spent.times, device_time)
        title = f"{_describe_length(run, spent)}; {advice}"
        device = describe_device_time(device_time)
        columns = 0 if run.console is None else run.console.width
        bar_width = _BAR_WIDTH if columns >= _MIN_COLUMNS else 0
        renderable: Table | None = draw(title, shares, device, bar_width=bar_width)
        # On a terminal the first record shows the whole report, the others nothing.
        for line in plain_lines(title, shares, device):
            logger.info(line, extra={"screen": renderable})
            renderable = None


def _describe_length(run: Run, spent: TimeSpent) -> str:
    whole = f"{'at least ' * bool(spent.killed)}{format_precise_time(spent.seconds)} in all"
    times = run.clock.times
    if not times.before.times:
        return whole
    return f"{format_precise_time(sum(times.read().values()))} in this attempt, {whole}"


def plain_lines(title: str, shares: Sequence[TimeShare], device: str) -> list[str]:
    """The report for files and pipes."""
    width = max((len(one.name) for one in shares), default=0)
    rows = [
        f"  {one.name:<{width}}  {one.share:4.0%}  {format_precise_time(one.seconds)}"
        + (f"  ({one.note})" if one.note else "")
        for one in shares
    ]
    ending = [f"  device: {device}"] if device else []
    return [f"time: {title}", *rows, *ending]


def draw(
    title: str, shares: Sequence[TimeShare], device: str, *, bar_width: int = _BAR_WIDTH
) -> Table:
    """The report for a terminal."""
    from rich.table import Table
    from rich.text import Text

    parts = Table.grid(padding=(0, 2, 0, 0))
    parts.add_column(no_wrap=True)
    parts.add_column(justify="right", no_wrap=True)
    parts.add_column(justify="right", no_wrap=True, style="dim")
    parts.add_column()
    for one in shares:
        bar = Text("━" * round(one.share * bar_width), style="cyan")
        bar.append(("  " * bool(bar) + one.note) * bool(one.note), style="dim")
        parts.add_row(Text(one.name), f"{one.share:.0%}", format_precise_time(one.seconds), bar)
    table = Table.grid(padding=(0, 2, 0, 0))
    table.add_column(style="dim", no_wrap=True)
    table.add_column(overflow="fold")
    table.add_row("time", Text(title))
    table.add_row("", parts)
    if device:
        table.add_row("device", Text(device))
    return table
