"""What a step is made of: a microbatch's two halves, the update, and the learning rate after it."""

from __future__ import annotations

from typing import TYPE_CHECKING, NoReturn, final

import torch
from torch import Tensor

from epochal.engine.events.events import call_listener
from epochal.engine.measure.meter import EMPTY_BATCH_LOSS
from epochal.engine.step.debug_losses import check_each_loss

if TYPE_CHECKING:
    from collections.abc import Callable

    from epochal.engine.feed.feed import Microbatches
    from epochal.engine.interfaces.task import Batch
    from epochal.engine.run import Run
    from epochal.engine.step.batch_outcome import Outcome

    TakeStep = Callable[[Microbatches], object]
    Update = Callable[[Run, Microbatches], object]
    TrainBatch = Callable[[Batch], Outcome]
    FinishBatch = Callable[[Outcome], None]


def build_step(run: Run, take_step: TakeStep) -> TakeStep:
    """The step that the loop takes: an update, and then the learning rate of the next one.

    Args:
        run: Its updater is bound already.
        take_step: Makes one update out of microbatches.
    """
    rate = run.updater.rate
    if not rate.is_moved_by_steps:
        return take_step

    def take_step_and_move_rate(microbatches: Microbatches) -> None:
        take_step(microbatches)
        rate.after_step(run.step + 1)

    return take_step_and_move_rate


@final
class BatchFunctions:
    """What comes before a microbatch's backward pass, and what comes after it.

    Nothing is asked per batch that is known when these are made.

    Args:
        run: With the listeners, metrics and task calls of this moment.
    """

    def __init__(self, run: Run) -> None:
        train = check_each_loss(run, run.calls.train) if run.is_debug else run.calls.train
        self.train = _with_batch_start(run, train)
        """Moves a batch and goes as far as the loss."""

        self.report = _build_report(run)
        """Computes extra metrics and counts the batch into the averages."""

        self.measure = _build_measure(run)
        """Shows the batch to the metric objects that training has."""

        finish = self.report
        if run.train_metrics:
            finish = _chain(finish, self.measure)
        self.finish = _with_batch_end(run, finish)
        """All that comes after: ``report``, ``measure``, and the listeners of ``batch_end``."""


def unprepared_step(*_: object) -> NoReturn:
    """Stand in for the step of a run that is not prepared to train."""
    raise AssertionError("the run was not prepared to train")


def _build_report(run: Run) -> FinishBatch:
    calls, meter = run.calls, run.meter
    has_extra, add = calls.has_extra_metrics, meter.add

    def report(outcome: Outcome) -> None:
        if has_extra or outcome.metrics:
            calls.report(outcome, meter)
        else:
            add(outcome.losses)
        loss, count = outcome.losses["loss"]
        if type(count) is Tensor:
            add({EMPTY_BATCH_LOSS: (loss, count <= 0)})

    return report


def _build_measure(run: Run) -> FinishBatch:
    metrics = tuple(run.train_metrics.values())

    def measure(outcome: Outcome) -> None:
        with torch.no_grad():
            for metric in metrics:
                metric.update(outcome.out, outcome.batch)

    return measure


def _chain(first: FinishBatch, second: FinishBatch) -> FinishBatch:
    def both(outcome: Outcome) -> None:
        first(outcome)
        second(outcome)

    return both


def _with_batch_start(run: Run, train: TrainBatch) -> TrainBatch:
    listeners = run.events.listeners("batch_start", "train")
    if not listeners:
        return train

    def tell_and_train(batch: Batch) -> Outcome:
        for listener in listeners:
            call_listener(listener, run, "train", run.batch_index, batch)
        return train(batch)

    return tell_and_train


def _with_batch_end(run: Run, finish: FinishBatch) -> FinishBatch:
    listeners = run.events.listeners("batch_end", "train")
    if not listeners:
        return finish

    def finish_and_tell(outcome: Outcome) -> None:
        finish(outcome)
        for listener in listeners:
            call_listener(listener, run, "train", run.batch_index, outcome.batch, outcome.out)

    return finish_and_tell
