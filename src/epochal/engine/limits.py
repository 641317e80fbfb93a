"""How long a run lasts: the ends of training, and its totals as far as they are known."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, final

from epochal.engine.every import Every

if TYPE_CHECKING:
    from epochal.config.duration import Duration
    from epochal.engine.feed import Feed
    from epochal.engine.run import Run

REASONS = {"ep": "max_epochs", "st": "max_steps", "sa": "max_samples", "s": "max_time"}


@final
@dataclass(frozen=True, slots=True)
class Limits:
    """Totals of a run; None is unknown."""

    epochs: int | None = None
    steps: int | None = None
    seconds: float | None = None
    """After how much time it stops at the latest."""


def find_limits(feed: Feed, duration: Duration, max_time: Duration | None) -> Limits:
    """The totals of a training of this duration."""
    per_epoch = feed.steps_per_epoch
    steps = _total_steps(feed, duration, per_epoch)
    epochs = math.ceil(duration.amount) if duration.unit == "ep" else None
    if epochs is None and steps is not None and per_epoch:
        epochs = math.ceil(steps / per_epoch)
    times = [limit.amount for limit in (duration, max_time) if limit and limit.unit == "s"]
    return Limits(epochs, steps, min(times) if times else None)


def add_ends(run: Run) -> None:
    """Plan the stops that ``train.for`` and ``train.max_time`` ask for."""
    train = run.options.train
    reason = REASONS[train.for_.unit]
    run.plan.add_once(
        f"stop: {reason}",
        Every(train.for_.amount, train.for_.unit),
        lambda run: run.stop(reason, status="finished"),
    )
    if train.max_time is not None:
        end = Every(train.max_time.amount, train.max_time.unit)
        run.plan.add_once("stop: max_time", end, lambda run: run.stop("max_time"))


def _total_steps(feed: Feed, duration: Duration, per_epoch: int | None) -> int | None:
    if duration.unit == "st":
        return math.ceil(duration.amount)
    if duration.unit == "ep" and per_epoch is not None:
        return math.ceil(duration.amount * per_epoch)
    if duration.unit == "sa" and per_epoch is not None:
        return _steps_of_samples(feed, duration.amount, per_epoch)
    return None


def _steps_of_samples(feed: Feed, samples: float, per_epoch: int) -> int | None:
    """Steps until this many samples, for loaders that know their sizes."""
    per_pass, per_step = feed.samples_per_epoch, feed.samples_per_step
    if not per_pass or per_step is None:
        return None
    passes, rest = divmod(samples, per_pass)
    return int(passes) * per_epoch + math.ceil(rest / per_step)
