"""Position and speed of a run, from host counters only: nothing is read from the device."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, final

from epochal.engine.feed.feed import count_batches, named_loaders
from epochal.engine.measure.clock import seconds_left
from epochal.hooks.console.number_format import format_progress

if TYPE_CHECKING:
    from epochal.engine.run import Run


@final
class RunProgress:
    """Follows one run; can be read from another thread.

    Args:
        run: The run to follow.
    """

    def __init__(self, run: Run) -> None:
        self.rate = 0.0
        """Samples per second, or steps if samples are not counted."""

        self.unit = "st"
        """``sa`` or ``st``: what ``rate`` counts."""

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
        limit = run.options.train.limit_batches if split != "predict" else None
        self._batches = None if loader is None else count_batches(loader, limit)

    def restart_speed(self) -> None:
        """Measure the speed from here on."""
        self.update_speed()
        run = self._run
        self._speed_start = (run.step, run.samples, run.clock.training_seconds)

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
            counts_samples = run.samples > samples
            self.unit = "sa" if counts_samples else "st"
            steps_or_samples = run.samples - samples if counts_samples else run.step - step
            self.rate = steps_or_samples / passed
