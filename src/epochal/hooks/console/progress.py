"""The hook that shows a run to people: progress, summaries, and everybody's log lines."""

from __future__ import annotations

import logging
import sys
from dataclasses import replace
from typing import TYPE_CHECKING, final

from rich.console import Console as Screen
from typing_extensions import override

from epochal.engine.clock import Lap, Speed, peak_memory_bytes
from epochal.engine.every import Every
from epochal.engine.hook import LOG_PRIORITY, Hook
from epochal.hooks.console.bar import Columns, SummaryLine
from epochal.hooks.console.display import Display
from epochal.hooks.console.handler import Takeover
from epochal.hooks.console.lines import Reading, interval_line, summary_line
from epochal.hooks.console.track import Track

if TYPE_CHECKING:
    from epochal.engine.meters import Window
    from epochal.engine.run import Run

logger = logging.getLogger("epochal.hooks.console")


@final
class Console(Hook):
    """Shows progress: a bar on a terminal, a line per interval in files and pipes.

    Lines and summaries go through the log, so the log file of a run has them in any case.

    Args:
        every: How often numbers are read and shown; 0 shows neither bar nor lines, only what
            epochs and evaluations came to.
        grad_norm: Show the norm of the gradient, if the run measures it.
        data_time: Show how long a step waits for its data.
        memory: Show the most device memory used so far, in MiB.
        bar: Draw a bar on a terminal; without it a terminal gets lines like a file.
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
        """Where to draw; standard output unless somebody sets another before the run."""

        self._shows = {"grad_norm": grad_norm, "data_time": data_time, "memory": memory}
        self._has_bar = bar
        self._columns: dict[str, Columns] = {}
        self._takeover: Takeover | None = None
        self._display: Display | None = None
        self._track: Track | None = None

    @override
    def setup(self, run: Run) -> None:
        if self.screen is None:
            # A wish for colour (FORCE_COLOR) makes no terminal of a file.
            self.screen = Screen(force_terminal=sys.stdout.isatty())
        self._takeover = Takeover(self.screen)

    @override
    def run_start(self, run: Run) -> None:
        assert self.screen is not None
        self._window: Window = run.meter.window("console")
        self._lap = Lap(run)
        run.on("checkpoint_loaded", lambda run: self._follow(run).go_on())
        is_drawable = self.screen.is_terminal and not self.screen.is_dumb_terminal
        if self._has_bar and is_drawable and not (self.every and self.every.is_never):
            self._display = Display(self.screen, run, self._follow(run))
            # The first numbers come at once, and stay in the window of the first interval.
            first = Every(run.step + 1, "st")
            run.plan.add_once("Console.first", first, self._show_first, priority=self.priority)

    @override
    def epoch_start(self, run: Run, split: str) -> None:
        if split == "train":
            self._follow(run).start_epoch()
        else:
            self._follow(run).start_evaluation()
        if self._display is not None:
            self._display.start(split)

    @override
    def loop_start(self, run: Run, split: str) -> None:
        if split != "train":
            self._follow(run).start_loop(split)

    @override
    def step_end(self, run: Run) -> None:
        reading = self._look(run, self._lap.read())
        track = self._follow(run)
        track.mark()
        position, pace = track.position(), track.pace()

        def show(means: dict[str, float]) -> None:
            full = _complete(reading, means, has_norm=self._shows["grad_norm"])
            line = interval_line(position, pace, full)
            if self._display is None:
                logger.info(line)
            else:
                self._display.reading = full
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
        self._end_display()

    @override
    def teardown(self, run: Run) -> None:
        self._end_display()
        self._track = None
        if self._takeover is not None:
            self._takeover.end()

    def _follow(self, run: Run) -> Track:
        """Where the run is; made when first asked, since hooks may evaluate before it starts."""
        if self._track is None:
            self._track = Track(run)
        return self._track

    def _show_first(self, run: Run) -> None:
        rate = _first_rate(run)

        def show(means: dict[str, float]) -> None:
            if self._display is not None and not self._display.reading.values:
                self._display.reading = Reading(values=_losses_first(means), lr=rate)

        if self._display is not None and not self._display.reading.values:
            self._window.peek_later(show)

    def _look(self, run: Run, speed: Speed) -> Reading:
        """All that the host knows by itself."""
        memory = peak_memory_bytes(run.device)
        return Reading(
            lr=_first_rate(run),
            step_seconds=speed.step_seconds,
            data_seconds=speed.data_seconds if self._shows["data_time"] else None,
            memory_mib=memory // 2**20 if memory and self._shows["memory"] else None,
        )

    def _summarize(self, run: Run, split: str, metrics: dict[str, float], seconds: float) -> None:
        monitor = run.monitor
        best = monitor is not None and monitor.improved and monitor.metric in metrics
        best = best and split != "train"  # an epoch's own means are compared after its end
        values = _losses_first(
            {name.removeprefix(f"{split}/"): value for name, value in metrics.items()}
        )
        if not self._shows["grad_norm"]:
            values.pop("grad_norm", None)
        if split == "train" and self._display is not None:
            self._display.reading = replace(self._display.reading, values=values)
        position = self._follow(run).position()
        columns = self._columns.setdefault(split, Columns())
        picture = SummaryLine(position, split, columns.numbers(values), seconds=seconds, best=best)
        line = summary_line(position, split, values, seconds=seconds, best=best)
        logger.info(line, extra={"screen": picture})

    def _end_display(self) -> None:
        if self._display is not None:
            self._display.stop()
            self._display = None


def _complete(reading: Reading, means: dict[str, float], *, has_norm: bool) -> Reading:
    values = _losses_first(means)
    grad_norm = values.pop("grad_norm", None)
    return replace(reading, values=values, grad_norm=grad_norm if has_norm else None)


def _first_rate(run: Run) -> float | None:
    return next(iter(run.learning_rates.values()), None)


def _losses_first(values: dict[str, float]) -> dict[str, float]:
    return dict(sorted(values.items(), key=lambda item: "loss" not in item[0]))
