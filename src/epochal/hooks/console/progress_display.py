"""The progress bars on a terminal, redrawn by a thread of its own while the run continues."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, final

from rich.progress import BarColumn, Progress, ProgressColumn, Task, TextColumn
from rich.table import Column
from rich.text import Text
from typing_extensions import override

from epochal.hooks.console.number_format import (
    format_clock,
    format_progress,
    format_rate,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from rich.console import Console, ConsoleOptions, RenderableType, RenderResult

    from epochal.engine.run import Run
    from epochal.hooks.console.run_progress import RunProgress

GAP = "  "
MIN_BAR = 10
MAX_BAR = 40
DRAWS_PER_SECOND = 5


@final
class ColumnWidths:
    """Remembers the largest width of each number, so that lines do not jump."""

    def __init__(self) -> None:
        self._widths: dict[str, int] = {}

    def pad(self, name: str, text: str) -> str:
        """``text`` right-aligned to the largest width that ``name`` ever had."""
        width = self._widths[name] = max(self._widths.get(name, 0), len(text))
        return text.rjust(width)

    def cells(self, texts: Mapping[str, str]) -> list[Text]:
        """A cell with name and padded text for each that is not empty."""
        return [
            Text.assemble((f"{name} ", "dim"), self.pad(name, text))
            for name, text in texts.items()
            if text
        ]


@final
class _CellsColumn(ProgressColumn):
    """The texts after the bar."""

    @override
    def render(self, task: Task) -> Text:
        return Text(" ") + Text(GAP).join(task.fields["cells"])


@final
class ProgressDisplay(Progress):
    """A bar for the epoch and, below it, one for an evaluation.

    Steps do not update it: it reads the counters of the run when it draws.

    Args:
        screen: The terminal.
        run: The run to show.
        progress: Position and speed of the run.
    """

    def __init__(self, screen: Console, run: Run, progress: RunProgress) -> None:
        self.numbers: dict[str, str] = {}
        """The latest losses, metrics and learning rate; replaced by the hook."""

        self._run = run
        self._progress = progress
        self._widths = ColumnWidths()
        self._is_training = False
        super().__init__(
            TextColumn("{task.description}", style="bold", markup=False),
            BarColumn(None, table_column=Column(max_width=MAX_BAR)),
            _CellsColumn(Column(no_wrap=True)),
            console=screen,
            refresh_per_second=DRAWS_PER_SECOND,
            transient=True,
            # What users print appears above the bars, unless it goes to a file.
            redirect_stdout=sys.stdout.isatty(),
            redirect_stderr=sys.stderr.isatty(),
        )
        self.add_task("", cells=[])
        self.add_task("", cells=[])
        self._epoch_bar, self._evaluation_bar = self.tasks

    def show(self, split: str) -> None:
        """Start drawing if that has not happened yet."""
        self._is_training = self._is_training or split == "train"
        if not self.live.is_started:
            self.start()

    @override
    def get_renderables(self) -> Iterator[RenderableType]:
        if not self.tasks:  # rich asks once before there are any
            return
        if self._is_training:
            yield from self._draw_epoch()
        if self._run.split != "train":
            name = "/".join(part for part in (self._run.split, self._run.loader_name) if part)
            done, total = self._progress.evaluated
            count = [Text(format_progress(done, total))]
            yield self._draw_bar(self._evaluation_bar, f"{GAP}{name}", done, total, count)

    def _draw_epoch(self) -> Iterator[RenderableType]:
        """The bar of the epoch, and a second line for numbers that do not fit."""
        progress = self._progress
        progress.update_speed()
        head, done, total = f"Epoch {progress.epoch_count}", progress.completed, progress.total
        count = Text(format_progress(done, total))
        numbers = self._widths.cells(self.numbers)
        clocks = [
            Text(f"{format_rate(progress.rate):>5} {progress.unit}/s", "cyan"),
            Text(self._widths.pad("elapsed", format_clock(progress.elapsed_seconds))),
            *self._widths.cells({"left": format_clock(progress.eta_seconds)}),
        ]
        room = self.console.width - len(head) - MIN_BAR
        rows = [[count, *numbers, *clocks], *([count, *clocks[i:]] for i in range(len(clocks)))]
        row = next((row for row in rows if 1 + _width(row) <= room), [count])
        yield self._draw_bar(self._epoch_bar, head, done, total, row)
        if numbers and row is not rows[0]:
            yield _first_line(numbers, self.console.options)

    def _draw_bar(
        self, bar: Task, head: str, done: int, total: int | None, cells: Sequence[Text]
    ) -> RenderableType:
        bar.description, bar.completed, bar.total, bar.fields["cells"] = head, done, total, cells
        return self.make_tasks_table([bar])


@final
class SummaryLine:
    """The result of one epoch or evaluation; the best one so far is marked with a star."""

    def __init__(self, head: str, numbers: Sequence[Text], duration: str, *, best: bool) -> None:
        self._cells = [Text(head, "bold"), *numbers, Text(duration, "dim")]
        self._best = best

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        star = "*" if options.ascii_only else "\N{BLACK STAR}"
        best = [Text(f"{star} best", "bold yellow")] if self._best else []
        yield from _wrap([*self._cells, *best], options.max_width)


def _width(cells: Sequence[Text]) -> int:
    return sum(len(GAP) + cell.cell_len for cell in cells)


def _wrap(cells: Sequence[Text], width: int) -> Iterator[Text]:
    """All cells in as many lines as needed; a cell that fits into a line is not broken."""
    line = cells[0]
    for cell in cells[1:]:
        if line.cell_len + len(GAP) + cell.cell_len <= width:
            line = Text.assemble(line, GAP, cell)
        else:
            yield line
            line = Text.assemble(GAP, cell)
    yield line


def _first_line(cells: Sequence[Text], options: ConsoleOptions) -> Text:
    """As many cells as one line holds, and an ellipsis if there are more."""
    line, *rest = _wrap([Text(), *cells], options.max_width)
    if rest:
        more = GAP + ("..." if options.ascii_only else "\N{HORIZONTAL ELLIPSIS}")
        line = next(_wrap([Text(), *cells], options.max_width - len(more))).append(more)
    return line
