"""The progress display of a terminal: one line for the epoch, one for an evaluation."""

from __future__ import annotations

from typing import TYPE_CHECKING, final

from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from epochal.hooks.console.figures import show_number, show_rate, show_seconds, show_time
from epochal.hooks.console.lines import show_count

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from rich.console import Console, ConsoleOptions, RenderResult

    from epochal.hooks.console.lines import Pace, Position, Reading

MIN_BAR = 10
MAX_BAR = 40
INDENT = "  "


@final
class Columns:
    """Remembers how wide each number has been, so that lines do not jump."""

    def __init__(self) -> None:
        self._widths: dict[str, int] = {}

    def pad(self, name: str, text: str) -> str:
        """``text`` right-aligned in the widest room that ``name`` ever took."""
        width = self._widths[name] = max(self._widths.get(name, 0), len(text))
        return text.rjust(width)

    def numbers(self, values: Mapping[str, float]) -> list[Text]:
        """A cell for each value."""
        return [_cell(name, self.pad(name, show_number(value))) for name, value in values.items()]


@final
class EpochLine:
    """The line of the current epoch; a second one takes the numbers that do not fit."""

    def __init__(
        self, position: Position, pace: Pace, reading: Reading, *, columns: Columns
    ) -> None:
        self._position = position
        self._head = Text(f"Epoch {show_count(position.epoch, position.num_epochs)}", "bold")
        self._elapsed = Text(columns.pad("elapsed", show_time(pace.elapsed)))
        self._left = _cell("left", columns.pad("left", show_time(pace.left)))
        self._speed = Text(f"{show_rate(pace.rate):>5} {pace.unit}/s", "cyan")
        self._numbers = columns.numbers(reading.values)
        if reading.lr is not None:
            self._numbers.append(_cell("lr", f"{reading.lr:.1e}"))
        if reading.grad_norm is not None:
            self._numbers += columns.numbers({"grad_norm": reading.grad_norm})

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        count = Text(show_count(self._position.index, self._position.length))
        clocks = [self._speed, self._elapsed, self._left]
        whole = [count, *self._numbers, *clocks]
        if _room(self._head, whole, options.max_width) >= MIN_BAR:
            yield _row(self._head, self._position, whole, options.max_width)
            return
        while clocks and _room(self._head, [count, *clocks], options.max_width) < MIN_BAR:
            del clocks[0]
        yield _row(self._head, self._position, [count, *clocks], options.max_width)
        if self._numbers:
            yield _fit(self._numbers, options)


@final
class EvaluationLine:
    """The line of an evaluation under way."""

    def __init__(self, position: Position, split: str) -> None:
        self._position = position
        self._split = split

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        head = Text(f"{INDENT}{self._split}", "bold")
        count = Text(show_count(self._position.index, self._position.length))
        yield _row(head, self._position, [count], options.max_width)


@final
class SummaryLine:
    """The lasting line about one epoch or evaluation; the best so far carries a star."""

    def __init__(
        self,
        position: Position,
        split: str,
        numbers: Sequence[Text],
        *,
        seconds: float,
        best: bool,
    ) -> None:
        epoch = f"Epoch {show_count(position.epoch, position.num_epochs)}  "
        # A run that only evaluates is in no epoch at all.
        self._head = f"{epoch if position.epoch or position.num_epochs else ''}{split:<5}"
        self._numbers = numbers
        self._seconds = seconds
        self._best = best

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        cells = [Text(self._head, "bold"), *self._numbers, Text(show_seconds(self._seconds), "dim")]
        if self._best:
            star = "*" if options.ascii_only else "\N{BLACK STAR}"
            cells.append(Text(f"{star} best", "bold yellow"))
        yield from _flow(cells, options.max_width)


def _cell(name: str, number: str) -> Text:
    return Text.assemble((f"{name} ", "dim"), number)


def _room(head: Text, cells: Sequence[Text], width: int) -> int:
    """What the bar may take when everything else stands with two blanks between."""
    return width - head.cell_len - 1 - sum(cell.cell_len + len(INDENT) for cell in cells)


def _row(head: Text, position: Position, cells: Sequence[Text], width: int) -> Table:
    table = Table.grid(padding=(0, 1, 0, 0))
    bar_width = max(1, min(MAX_BAR, _room(head, cells, width)))
    bar = ProgressBar(
        total=position.length,
        completed=position.index,
        width=bar_width,
        pulse=position.length is None,
    )
    for column_width in (head.cell_len, bar_width, None):
        table.add_column(no_wrap=True, width=column_width)
    table.add_row(head, bar, Text(" ") + Text(INDENT).join(cells))
    return table


def _flow(cells: Sequence[Text], width: int) -> Iterator[Text]:
    """All cells, in as many lines as they need; no cell is broken that fits into a line."""
    line = cells[0]
    for cell in cells[1:]:
        if line.cell_len + len(INDENT) + cell.cell_len <= width:
            line = Text.assemble(line, INDENT, cell)
        else:
            yield line
            line = Text.assemble(INDENT, cell)
    yield line


def _fit(cells: Sequence[Text], options: ConsoleOptions) -> Text:
    """As many cells as one line holds, and a sign when there are more."""
    more = "..." if options.ascii_only else "\N{HORIZONTAL ELLIPSIS}"
    line = Text(no_wrap=True, overflow="crop")
    for index, cell in enumerate(cells):
        is_last = index == len(cells) - 1
        needed = len(INDENT) + cell.cell_len + (0 if is_last else len(INDENT + more))
        if line.cell_len + needed > options.max_width:
            return line.append(INDENT + more)
        line.append(INDENT).append_text(cell)
    return line
