"""How long a run is: its end, and its total of steps, epochs and seconds."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, final

from epochal.engine.feed.feed import count_batches, count_samples
from epochal.engine.interfaces.every import Every
from epochal.engine.run.stage_progress import TrainingLimits

if TYPE_CHECKING:
    from collections.abc import Iterable

    from epochal.config.duration import Duration
    from epochal.engine.feed.feed import Feed
    from epochal.engine.run.engine_run import EngineRun


@final
@dataclass(frozen=True, kw_only=True, slots=True)
class EpochSize:
    """One pass over the training data; None is unknown."""

    accumulate: int
    batches: int | None = None
    batch_size: int | None = None
    num_samples: int | None = None
    """Samples that the sampler draws."""

    drops_last: bool = False
    limit: int | None = None

    @property
    def samples(self) -> int | None:
        """The samples in all batches."""
        if self.batches is None or self.num_samples is None or self.batch_size is None:
            return None
        return min(self.num_samples, self.batches * self.batch_size)

    def steps(self, start: int = 0) -> int:
        """Steps from a batch to the end; only if the number of batches is known."""
        assert self.batches is not None
        return math.ceil((self.batches - start) / self.accumulate)

    def with_batch_size(self, batch_size: int) -> EpochSize:
        """The same data in batches of another size."""
        batches = None
        if self.num_samples is not None and self.batch_size is not None:
            exact = self.num_samples / batch_size
            batches = math.floor(exact) if self.drops_last else math.ceil(exact)
            batches = batches if self.limit is None else min(batches, self.limit)
        return replace(self, batches=batches, batch_size=batch_size)


def read_epoch_size(feed: Feed) -> EpochSize:
    """The size of one pass over the training loader."""
    loader = feed.loader
    size = getattr(loader, "batch_size", None)
    return EpochSize(
        accumulate=feed.accumulate,
        batches=count_batches(loader, feed.limit),
        batch_size=size if isinstance(size, int) else None,
        num_samples=count_samples(loader),
        drops_last=bool(getattr(loader, "drop_last", False)),
        limit=feed.limit,
    )


@final
@dataclass(frozen=True, slots=True)
class TrainingPosition:
    """A position in a training; None is unknown."""

    step: int | None = 0
    epoch: int | None = 0
    batch: int | None = 0
    """Index in the epoch of the next batch."""

    def after(self, length: Duration | None, epoch: EpochSize) -> TrainingPosition:
        """The position after a duration."""
        if length is None or length.is_time:
            return TrainingPosition(None, None, None)
        if length.unit == "ep":
            return self._after_epochs(int(length.amount), epoch)
        if length.unit == "sa":
            return self._after_samples(int(length.amount), epoch)
        return self._after_steps(int(length.amount), epoch)

    def _after_epochs(self, count: int, epoch: EpochSize) -> TrainingPosition:
        steps = None
        if epoch.batches is not None and self.batch is not None:
            steps = epoch.steps(self.batch) + (count - 1) * epoch.steps()
        return TrainingPosition(_add(self.step, steps), _add(self.epoch, count), 0)

    def _after_steps(self, count: int, epoch: EpochSize) -> TrainingPosition:
        step = _add(self.step, count)
        if epoch.batches is None or self.batch is None:
            return TrainingPosition(step, None, None)
        rest = epoch.steps(self.batch)
        if count < rest:
            return TrainingPosition(step, self.epoch, self.batch + count * epoch.accumulate)
        epochs, more = divmod(count - rest, epoch.steps())
        return TrainingPosition(step, _add(self.epoch, 1 + epochs), more * epoch.accumulate)

    def _after_samples(self, count: int, epoch: EpochSize) -> TrainingPosition:
        samples = epoch.samples
        if epoch.batches is None or not samples or not epoch.batch_size or self.batch is None:
            return TrainingPosition(None, None, None)
        per_step = epoch.batch_size * epoch.accumulate
        left = samples - self.batch * epoch.batch_size
        steps = math.ceil(count / per_step)
        if count > left:
            epochs, more = divmod(count - left, samples)
            steps = epoch.steps(self.batch) + epochs * epoch.steps() + math.ceil(more / per_step)
        return self._after_steps(steps, epoch)


def _add(first: int | None, second: int | None) -> int | None:
    return None if first is None or second is None else first + second


def find_limits(end: TrainingPosition, times: Iterable[Duration | None]) -> TrainingLimits:
    """The totals of a training that ends at a position, and at the latest after some time."""
    is_begun = bool(end.batch)
    epochs = None if end.epoch is None else end.epoch + is_begun
    seconds = [time.amount for time in times if time is not None and time.is_time]
    return TrainingLimits(epochs, end.step, min(seconds) if seconds else None)


def plan_training_end(run: EngineRun) -> None:
    """Plan the end of the stage that the run begins with, and that of ``train.max_time``."""
    run.course.plan_stage_end(run)
    max_time = run.options.train.max_time
    if max_time is not None:
        end = Every(max_time.amount, max_time.unit)
        run.plan.add_once("stop: max_time", end, lambda run: run.stop("max_time"))
