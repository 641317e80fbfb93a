"""The moving part of a terminal, redrawn by a thread of its own while the run goes on."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, final

from rich.console import Console as Screen
from rich.console import Group, RenderableType
from rich.live import Live

from epochal.hooks.console.bar import Columns, EpochLine, EvaluationLine
from epochal.hooks.console.lines import Reading

if TYPE_CHECKING:
    from epochal.engine.run import Run
    from epochal.hooks.console.track import Track

DRAWS_PER_SECOND = 5


@final
class Display:
    """A line for the epoch and, below it, one for an evaluation.

    Steps do not know of it: it looks at the run's own counters when it draws.

    Args:
        screen: The terminal.
        run: The run to show.
        track: Knows where the run is.
    """

    def __init__(self, screen: Screen, run: Run, track: Track) -> None:
        self.reading = Reading()
        """The latest numbers; replaced by who reads them."""

        self._run = run
        self._track = track
        self._columns = Columns()
        self._is_training = False
        self._live = Live(
            get_renderable=self.draw,
            console=screen,
            refresh_per_second=DRAWS_PER_SECOND,
            transient=True,
            # What users print appears above the line, unless they sent it to a file.
            redirect_stdout=sys.stdout.isatty(),
            redirect_stderr=sys.stderr.isatty(),
        )

    def start(self, split: str) -> None:
        """Begin to draw, if that has not been done."""
        self._is_training = self._is_training or split == "train"
        if not self._live.is_started:
            self._live.start(refresh=True)

    def stop(self) -> None:
        """Leave the terminal as if nothing had been drawn."""
        self._live.stop()

    def draw(self) -> RenderableType:
        """The display at this moment."""
        lines: list[RenderableType] = []
        if self._is_training:
            pace, position = self._track.pace(), self._track.position()
            lines.append(EpochLine(position, pace, self.reading, columns=self._columns))
        if self._run.split != "train":
            name = "/".join(part for part in (self._run.split, self._run.loader_name) if part)
            lines.append(EvaluationLine(self._track.evaluation(), name))
        return Group(*lines)
