"""Position and speed of a run, and the progress bars that show them on a terminal."""

from __future__ import annotations

import math
import re
import sys
from datetime import timedelta
from typing import TYPE_CHECKING, final

from rich.progress import BarColumn, Progress, ProgressColumn, Task, TextColumn
from rich.table import Column
from rich.text import Text
from typing_extensions import override

from epochal.engine.feed.feed import count_batches, named_loaders
from epochal.engine.run.speed import seconds_left
from epochal.text.formatting import format_rate

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from rich.console import Console, ConsoleOptions, RenderableType, RenderResult

    from epochal.engine.interfaces.run import Run
    from epochal.engine.run.engine_run import EngineRun

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
        head = "Step" if progress.is_by_steps else f"Epoch {progress.epoch_count}"
        done, total = progress.share
        count = Text(progress.step_count)
        numbers = self._widths.cells(self.numbers)
        clocks = [
            *(Text(f"{format_rate(rate):>5} {unit}/s", "cyan") for unit, rate in progress.rates),
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
        self, bar: Task, head: str, done: float, total: float | None, cells: Sequence[Text]
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


@final
class RunProgress:
    """Follows one run; can be read from another thread."""

    def __init__(self, run: EngineRun) -> None:
        self.is_by_steps = bool(run.stage_progress.starts) and not run.stage_progress.ends_by_epochs
        """Whether it counts the steps of the run, not those of an epoch."""

        self.counts_per_sample: float | None = None
        """Such as tokens; None if unknown."""

        self._steps_per_second = self._samples_per_second = 0.0

        self.total: int | None = None
        """Steps per epoch; None if the loader has no length."""

        self._run = run
        self._batches: int | None = None
        self._first_step = run.step
        self._epoch_start = run.clock.training_seconds
        self._evaluation_start = run.clock.seconds
        self._speed_start = (run.step, run.samples, run.clock.training_seconds)

    def start_epoch(self) -> None:
        """Begin a training epoch."""
        self._first_step = self._run.step
        self.total = self._run.feed.steps_per_epoch
        self._epoch_start = self._run.clock.training_seconds
        self.restart_speed()

    def resume_epoch(self) -> None:
        """Continue the epoch of a loaded checkpoint: its earlier steps count."""
        run = self._run
        self.start_epoch()
        self._first_step -= math.ceil(run.feed.next_position / run.options.optim.accumulate)

    def start_evaluation(self) -> None:
        """Begin a pass over another split."""
        self._evaluation_start = self._run.clock.seconds
        self._batches = None

    def start_loader(self, split: str) -> None:
        """Begin one loader of another split."""
        run = self._run
        loader = named_loaders(run.task, split).get(run.loader_name)
        train = run.options.train
        limit = train.max_eval_batches if split != "predict" else train.limit_batches
        self._batches = None if loader is None else count_batches(loader, limit)

    def restart_speed(self) -> None:
        """Measure the speed from here on."""
        self.update_speed()
        run = self._run
        self._speed_start = (run.step, run.samples, run.clock.training_seconds)

    @property
    def share(self) -> tuple[float, float | None]:
        """How much of the run or the epoch is done, and of how much."""
        limits = self._run.limits
        if not self.is_by_steps:
            return self.completed, self.total
        if limits.steps is None and limits.seconds is not None:
            return self.elapsed_seconds, limits.seconds
        return self._run.step, limits.steps

    @property
    def step_count(self) -> str:
        """Steps of the run or of the epoch, such as ``50/300``."""
        if self.is_by_steps:
            return format_progress(self._run.step, self._run.limits.steps)
        return format_progress(self.completed, self.total)

    @property
    def rates(self) -> list[tuple[str, float]]:
        """The current speed with its unit; that of steps too if the run counts them."""
        return self.name_rates(self._steps_per_second, self._samples_per_second)

    def name_rates(self, steps: float, samples: float) -> list[tuple[str, float]]:
        """Units and values of a speed, given in steps and samples per second."""
        rates = [("st", steps)]
        if samples and self._run.counts is None:
            rates.append(("sa", samples))
        elif samples and self.counts_per_sample is not None:
            rates.append((self._run.count_unit, samples * self.counts_per_sample))
        return rates if self.is_by_steps else rates[-1:]

    def read_counts(self, samples: int) -> None:
        """Update how much the task counts per sample, after ``samples`` samples."""
        if self._run.counts is not None and samples:
            self.counts_per_sample = self._run.counts.count("loss") / samples

    @property
    def completed(self) -> int:
        """Steps taken in this epoch."""
        return self._run.step - self._first_step

    @property
    def epoch_count(self) -> str:
        """``epoch/num_epochs``, counted from 1; empty if the run only evaluates."""
        epoch, num_epochs = self._run.epoch_number, self._run.limits.epochs
        return format_progress(epoch, num_epochs) if epoch or num_epochs else ""

    @property
    def evaluated(self) -> tuple[int, int | None]:
        """How many batches the evaluation has seen, and of how many."""
        return self._run.batch_index + (self._batches is not None), self._batches

    @property
    def elapsed_seconds(self) -> float:
        """Time since the run started."""
        return self._run.clock.seconds

    @property
    def epoch_seconds(self) -> float:
        """Training time of the epoch, without evaluations."""
        return self._run.clock.training_seconds - self._epoch_start

    @property
    def evaluation_seconds(self) -> float:
        """Time since the evaluation started."""
        return self._run.clock.seconds - self._evaluation_start

    @property
    def eta_seconds(self) -> float | None:
        """Time left for the whole run; None while unknown."""
        return seconds_left(self._run)

    def update_speed(self) -> None:
        """Bring ``rate`` up to date."""
        run = self._run
        step, samples, seconds = self._speed_start
        passed = run.clock.training_seconds - seconds
        # The clock leaves out an evaluation only after its end, so keep the speed during it.
        if run.split == "train" and run.step > step and passed > 0:
            self._steps_per_second = (run.step - step) / passed
            self._samples_per_second = (run.samples - samples) / passed


def format_progress(index: int, total: int | None) -> str:
    """``index/total`` with the index padded, so that the text keeps its width."""
    return f"{index}" if total is None else f"{index:>{len(str(total))}}/{total}"


def format_number(value: float) -> str:
    """Five digits where possible, else scientific notation.

    >>> format_number(0.34123), format_number(-12.5), format_number(3.4e-7)
    ('0.3412', '-12.500', '3.40e-07')
    """
    size = abs(value)
    if not math.isfinite(value):
        return str(value)
    if size >= 9999.95 or 0 < size < 1e-3:
        return f"{value:.2e}"
    return f"{value:.4f}" if size < 1 else f"{value:#.5g}"


def format_clock(seconds: float | None) -> str:
    """Hours, minutes and seconds, after the days if there are any.

    >>> format_clock(62), format_clock(90_000), format_clock(None)
    ('0:01:02', '1d 1:00:00', '-:--:--')
    """
    if seconds is None or not math.isfinite(seconds):
        return "-:--:--"
    return re.sub(r" days?, ", "d ", str(timedelta(seconds=max(0, round(seconds)))))


def format_duration(seconds: float) -> str:
    """A short time with its unit, in three digits.

    >>> format_duration(0.0351), format_duration(2.5), format_duration(75.04), format_duration(4000)
    ('35 ms', '2.50 s', '75.0 s', '1:06:40')
    """
    if seconds >= 999.5:
        return format_clock(seconds)
    if seconds < 0.9995:
        return f"{max(seconds, 0) * 1000:.0f} ms"
    return f"{seconds:.2f} s" if seconds < 9.995 else f"{seconds:.1f} s"
