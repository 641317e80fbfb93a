"""Where a run is and how fast it goes, from plain numbers: nothing is read from a device."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, final

from epochal.engine.clock import seconds_left
from epochal.engine.feed import count_batches, named_loaders
from epochal.hooks.console.lines import Pace, Position

if TYPE_CHECKING:
    from epochal.engine.run import Run


@final
class Track:
    """Follows one run; may be asked from another thread.

    Args:
        run: The run to follow.
    """

    def __init__(self, run: Run) -> None:
        self._run = run
        self._first_step = run.step
        self._steps: int | None = None
        self._batches: int | None = None
        self._epoch_begun = run.clock.training_seconds
        self._evaluation_begun = run.clock.seconds
        self._mark = (run.step, run.samples, run.clock.training_seconds)
        self._pace = Pace()

    def start_epoch(self) -> None:
        """A training epoch begins."""
        self._first_step = self._run.step
        self._steps = self._run.feed.steps_per_epoch
        self._epoch_begun = self._run.clock.training_seconds
        self.mark()

    def go_on(self) -> None:
        """A checkpoint was loaded: the steps before it count for its epoch."""
        run = self._run
        done = math.ceil(run.feed.next_position / run.options.optim.accumulate)
        self.start_epoch()
        self._first_step = run.step - done

    def start_evaluation(self) -> None:
        """A pass over another split begins."""
        self._evaluation_begun = self._run.clock.seconds
        self._batches = None

    def start_loop(self, split: str) -> None:
        """A loader of another split begins."""
        run = self._run
        loader = named_loaders(run.task, split).get(run.loader_name)
        limit = run.options.train.limit_batches if split != "predict" else None
        self._batches = None if loader is None else count_batches(loader, limit)

    def mark(self) -> None:
        """Measure speed from here on."""
        self.pace()
        run = self._run
        self._mark = (run.step, run.samples, run.clock.training_seconds)

    @property
    def epoch_seconds(self) -> float:
        """How long the epoch has trained, evaluations left out."""
        return self._run.clock.training_seconds - self._epoch_begun

    @property
    def evaluation_seconds(self) -> float:
        """How long the evaluation has taken."""
        return self._run.clock.seconds - self._evaluation_begun

    def position(self) -> Position:
        """Where training is."""
        run = self._run
        return Position(
            epoch=run.epoch_number,
            num_epochs=run.limits.epochs,
            index=run.step - self._first_step,
            length=self._steps,
        )

    def evaluation(self) -> Position:
        """Where the evaluation is."""
        run = self._run
        done = run.batch_index + 1 if self._batches is not None else run.batch_index
        return Position(
            epoch=run.epoch_number,
            num_epochs=run.limits.epochs,
            index=done,
            length=self._batches,
        )

    def pace(self) -> Pace:
        """How fast training goes and how long it will take."""
        run = self._run
        step, samples, seconds = self._mark
        passed = run.clock.training_seconds - seconds
        rate, unit = self._pace.rate, self._pace.unit
        # During an evaluation the clock of the training has not been told yet.
        if run.split == "train" and run.step > step and passed > 0:
            counts_samples = run.samples > samples
            unit = "sa" if counts_samples else "st"
            rate = ((run.samples - samples) if counts_samples else (run.step - step)) / passed
        self._pace = Pace(elapsed=run.clock.seconds, left=seconds_left(run), rate=rate, unit=unit)
        return self._pace
