"""The hook that shows progress, summaries and log lines of a run."""

from __future__ import annotations

import logging
import sys
from datetime import datetime
from typing import TYPE_CHECKING, final

from rich.console import Console as Screen
from rich.text import Text
from typing_extensions import override

from epochal.engine.interfaces.every import Every
from epochal.engine.interfaces.hook import LOG_PRIORITY, Hook
from epochal.engine.measure.clock import peak_memory_bytes
from epochal.engine.run.engine_run import engine_run
from epochal.engine.run.speed import SpeedMeter
from epochal.hooks.console.notebook_display import NotebookDisplay
from epochal.hooks.console.progress_display import (
    GAP,
    ColumnWidths,
    ProgressDisplay,
    RunProgress,
    SummaryLine,
    format_clock,
    format_duration,
    format_number,
)
from epochal.records.secrets import redact
from epochal.text.formatting import format_rate

if TYPE_CHECKING:
    from epochal.engine.interfaces.run import Run
    from epochal.engine.measure.meter import Window
    from epochal.engine.run.speed import Speed

logger = logging.getLogger("epochal.hooks.console")

STYLES = {logging.WARNING: "yellow", logging.ERROR: "bold red", logging.CRITICAL: "bold red"}


@final
class Console(Hook):
    """Shows progress: a bar on a terminal or in a notebook, a line per interval in files and pipes.

    Lines and summaries are log records, so the log file of a run always has them.
    A notebook shows no other lines of ours than warnings.

    Args:
        every: How often numbers are read and shown; 0 shows neither bar nor lines, only the
            summaries of epochs and evaluations.
        grad_norm: Show the norm of the gradient, if the run measures it.
        data_time: Show how long a step waits for its data.
        memory: Show the peak device memory so far, in MiB.
        bar: Draw a bar on a terminal or in a notebook; if false, they get lines like a file.
    """

    priority = LOG_PRIORITY

    def __init__(
        self,
        *,
        every: Every = "50st",  # type: ignore[assignment]  # the schema shows what users type
        grad_norm: bool = False,
        data_time: bool = True,
        memory: bool = True,
        bar: bool = True,
    ) -> None:
        self.every = Every.parse(every)
        self.screen: Screen | None = None
        """Where to draw; standard output unless set before the run."""

        self._shows = {"grad_norm": grad_norm, "data_time": data_time, "memory": memory}
        self._has_bar = bar
        self._widths: dict[str, ColumnWidths] = {}
        self._redirect: LogRedirect | None = None
        self._display: ProgressDisplay | NotebookDisplay | None = None
        self._progress: RunProgress | None = None

    @override
    def setup(self, run: Run) -> None:
        if self.screen is None:
            # FORCE_COLOR must not turn a file into a terminal.
            self.screen = Screen(force_terminal=sys.stdout.isatty())
        run.console = self.screen
        self._has_bar = self._has_bar and not (self.every and self.every.is_never)
        self._redirect = LogRedirect(
            self.screen, has_notebook_bar=self._has_bar and self.screen.is_jupyter
        )

    @override
    def run_start(self, run: Run) -> None:
        assert self.screen is not None
        self._window: Window = run.meter.window("console")
        self._lap = SpeedMeter(engine_run(run))
        run.on("checkpoint_loaded", self._resume)
        if self._has_bar and self.screen.is_jupyter:
            self._display = NotebookDisplay(run, self._follow(run))
        elif self._has_bar and self.screen.is_terminal and not self.screen.is_dumb_terminal:
            self._display = ProgressDisplay(self.screen, run, self._follow(run))
        if self._display is not None:
            # Show the first step's numbers at once; they also count for the first interval.
            first = Every(run.step + 1, "st")
            plan = engine_run(run).plan
            plan.add_once("Console.first", first, self._show_first, priority=self.priority)

    @override
    def epoch_start(self, run: Run, split: str) -> None:
        if split == "train":
            self._follow(run).start_epoch()
        else:
            self._follow(run).start_evaluation()
        if self._display is not None:
            self._display.show(split)

    @override
    def loop_start(self, run: Run, split: str) -> None:
        if split != "train":
            self._follow(run).start_loader(split)

    @override
    def step_end(self, run: Run) -> None:
        speed, progress = self._lap.read(), self._follow(run)
        head, cells = self._describe_steps(run, speed)
        samples = run.samples

        def show(means: dict[str, float]) -> None:
            progress.read_counts(samples)
            if progress.is_by_steps and speed.steps:
                rates = progress.name_rates(1 / speed.step_seconds, speed.samples_per_second)
                cells["speed"] = ", ".join(f"{format_rate(rate)} {unit}/s" for unit, rate in rates)
            values = self._format_values(means)
            norm = {"grad_norm": values.pop("grad_norm", "")}
            line = GAP.join([head, *_pairs(cells), *_pairs(norm), *_pairs(values)])
            if self._display is None:
                logger.info(line)
            else:
                self._display.numbers = {**values, "lr": cells["lr"], **norm}
                logger.info(line, extra={"screen": None})

        self._window.read_later(show)

    @override
    def epoch_end(self, run: Run, split: str, metrics: dict[str, float]) -> None:
        if split == "train":
            self._summarize(run, split, metrics, self._follow(run).epoch_seconds)
        elif split == "predict":
            self._summarize(run, split, metrics, self._follow(run).evaluation_seconds)

    @override
    def eval_end(self, run: Run, split: str, metrics: dict[str, float]) -> None:
        self._summarize(run, split, metrics, self._follow(run).evaluation_seconds)

    @override
    def run_end(self, run: Run) -> None:
        if self._display is not None:
            self._display.stop()
            self._display = None

    @override
    def teardown(self, run: Run) -> None:
        self.run_end(run)  # has not been called after an early error
        self._progress = None
        if self._redirect is not None:
            self._redirect.end()

    def _follow(self, run: Run) -> RunProgress:
        """The progress of the run; made on first use, since hooks may evaluate before the start."""
        if self._progress is None:
            self._progress = RunProgress(engine_run(run))
        return self._progress

    def _resume(self, run: Run) -> None:
        """Continue from a loaded checkpoint: its clock has the time of earlier processes."""
        self._follow(run).resume_epoch()
        self._lap = SpeedMeter(engine_run(run))

    def _show_first(self, run: Run) -> None:
        lr, samples = _format_lr(run), run.samples

        def show(means: dict[str, float]) -> None:
            self._follow(run).read_counts(samples)
            if self._display is not None and not self._display.numbers:
                self._display.numbers = {**self._format_values(means), "lr": lr}

        if self._display is not None and not self._display.numbers:
            self._window.peek_later(show)

    def _describe_steps(self, run: Run, speed: Speed) -> tuple[str, dict[str, str]]:
        """Position and host measurements of the interval; empty texts are not shown."""
        progress = self._follow(run)
        progress.restart_speed()
        eta, memory = progress.eta_seconds, peak_memory_bytes(run.device)
        epoch = "Step " if progress.is_by_steps else f"Epoch [{progress.epoch_count}]"
        return f"{epoch}[{progress.step_count}]", {
            "lr": _format_lr(run),
            "eta": "" if eta is None else format_clock(eta),
            "speed": "",  # known when the counts of the task have arrived
            "time": f"{speed.step_seconds:.3f}",
            "data_time": f"{speed.data_seconds:.3f}" if self._shows["data_time"] else "",
            "memory": f"{memory // 2**20}" if memory and self._shows["memory"] else "",
        }

    def _summarize(self, run: Run, split: str, metrics: dict[str, float], seconds: float) -> None:
        monitor = run.monitor
        best = monitor is not None and monitor.improved and monitor.metric in metrics
        best = best and split != "train"  # the monitor compares those after this hook
        values = self._format_values(
            {name.removeprefix(f"{split}/"): value for name, value in metrics.items()}
        )
        if split == "train" and self._display is not None:
            self._display.numbers = {**values, "lr": self._display.numbers.get("lr", "")}
        progress, duration = self._follow(run), format_duration(seconds)
        unit = "Step" if progress.is_by_steps else "Epoch"
        count = progress.step_count if progress.is_by_steps else progress.epoch_count
        cells = [f"{unit} [{count}]"] if count else []
        cells += [f"{split:<5}", *_pairs(values), f"({duration})", *(["* best"] if best else [])]
        head = (f"{unit} {count}{GAP}" if count else "") + f"{split:<5}"
        numbers = self._widths.setdefault(split, ColumnWidths()).cells(values)
        if isinstance(self._display, NotebookDisplay):
            self._display.show_result(split, values, duration, _describe_best(run, metrics, best))
        logger.info(
            GAP.join(cells), extra={"screen": SummaryLine(head, numbers, duration, best=best)}
        )

    def _format_values(self, values: dict[str, float]) -> dict[str, str]:
        """The shown values as text, losses first."""
        ordered = sorted(values.items(), key=lambda item: "loss" not in item[0])
        is_hidden = {"grad_norm": not self._shows["grad_norm"]}
        return {name: format_number(one) for name, one in ordered if not is_hidden.get(name)}


def _describe_best(run: Run, metrics: dict[str, float], best: bool) -> str:
    """Whether these metrics have the best value so far, or else what the best one was."""
    if best:
        return "\N{BLACK STAR} best"
    is_monitored = run.monitor is not None and run.monitor.metric in metrics
    value = run.monitor.best if is_monitored and run.monitor is not None else None
    return "" if value is None else f"(best {format_number(value)})"


def _format_lr(run: Run) -> str:
    rate = next(iter(run.used_learning_rates.values()), None)
    return "" if rate is None else f"{rate:.1e}"


def _pairs(texts: dict[str, str]) -> list[str]:
    return [f"{name}: {text}" for name, text in texts.items() if text]


@final
class ScreenHandler(logging.Handler):
    """Shows log records on ``screen``.

    A record may carry an attribute ``screen``: what to show on a terminal in place of the
    message (anything that rich can print), or None to show nothing on a terminal.
    """

    def __init__(self, screen: Screen) -> None:
        super().__init__()
        self._screen = screen

    @override
    def emit(self, record: logging.LogRecord) -> None:
        try:
            text = _describe(record)
            if not self._screen.is_terminal:
                self._write(f"{datetime.fromtimestamp(record.created):%Y-%m-%d} {text}\n")
            elif (shown := getattr(record, "screen", text)) is not None:
                self._screen.print(shown, soft_wrap=isinstance(shown, Text), highlight=False)
        except Exception:  # like the handlers of the standard library: logging never ends a run
            self.handleError(record)

    def _write(self, line: str) -> None:
        file = self._screen.file
        # Characters that the encoding of the stream lacks become question marks, not errors.
        encoding = getattr(file, "encoding", None) or "utf-8"
        file.write(line.encode(encoding, "replace").decode(encoding))
        file.flush()


@final
class LogRedirect:
    """Shows the log on ``screen`` from construction until ``end``.

    On a terminal, handlers that write to standard output or error are removed until then, because
    they would write over the progress bars. Elsewhere they stay, and nothing is shown twice; below
    the bar of a notebook, they leave out what it shows.
    """

    def __init__(self, screen: Screen, *, has_notebook_bar: bool = False) -> None:
        root, ours = logging.getLogger(), logging.getLogger("epochal")
        others = [handler for handler in root.handlers if _writes_to_console(handler)]
        self._removed = others if screen.is_terminal else []
        self._handler = ScreenHandler(screen) if screen.is_terminal or not others else None
        self._level = ours.level
        if not others and ours.level == logging.NOTSET:
            ours.setLevel(logging.INFO)  # without logging set up, progress would be dropped
        for handler in self._removed:
            root.removeHandler(handler)
        if self._handler is not None:
            root.addHandler(self._handler)
        shown = others if self._handler is None else [self._handler]
        self._filtered = shown if has_notebook_bar else []
        for handler in self._filtered:
            handler.addFilter(_is_beside_notebook_bar)

    def end(self) -> None:
        """Restore the handlers and the level; a second call does nothing."""
        root = logging.getLogger()
        if self._handler is not None:
            root.removeHandler(self._handler)
        for handler in self._removed:
            root.addHandler(handler)
        for handler in self._filtered:
            handler.removeFilter(_is_beside_notebook_bar)
        logging.getLogger("epochal").setLevel(self._level)
        self._handler, self._removed = None, []


def _is_beside_notebook_bar(record: logging.LogRecord) -> bool:
    """Whether a notebook shows a log record: warnings, and all that the user's code logs."""
    return record.levelno > logging.INFO or record.name.partition(".")[0] != "epochal"


def _writes_to_console(handler: logging.Handler) -> bool:
    if isinstance(handler, logging.StreamHandler):
        return handler.stream in (sys.stdout, sys.stderr, sys.__stdout__, sys.__stderr__)
    return isinstance(handler, ScreenHandler)


def _describe(record: logging.LogRecord) -> Text:
    """Time and message without secrets; unless the level is INFO also level and foreign logger."""
    style = STYLES.get(record.levelno, "")
    text = Text(f"{datetime.fromtimestamp(record.created):%H:%M:%S} ", "dim")
    if record.levelno != logging.INFO:
        own = record.name.partition(".")[0] == "epochal"
        text.append(f"{record.levelname.lower()}{':' * own} ", style)
        text.append("" if own else f"{record.name}: ", "dim")
    return text.append(redact(logging.Formatter().format(record)))  # with the traceback
