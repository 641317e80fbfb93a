"""Builds the functions of a step: before backward, after backward, and the learning rate."""

from __future__ import annotations

from typing import TYPE_CHECKING, NoReturn, final

import torch
from torch import Tensor

from epochal.engine.measure.meter import EMPTY_BATCH_LOSS
from epochal.engine.step.debug_losses import check_each_loss
from epochal.engine.step.task_calls import TaskCalls

if TYPE_CHECKING:
    from collections.abc import Callable

    from epochal.engine.feed.feed import Microbatches
    from epochal.engine.interfaces.outcome import Outcome
    from epochal.engine.interfaces.task import Batch
    from epochal.engine.run.engine_run import EngineRun

    TakeStep = Callable[[Microbatches], object]
    Update = Callable[[EngineRun, Microbatches], object]
    TrainBatch = Callable[[Batch], Outcome]
    FinishBatch = Callable[[Outcome], None]


def build_step(run: EngineRun, take_step: TakeStep) -> TakeStep:
    """The step of the loop: an update, then the learning rate of the next step."""
    rate = run.rate
    if not rate.is_moved_by_steps:
        return take_step

    def take_step_and_move_rate(microbatches: Microbatches) -> None:
        take_step(microbatches)
        rate.keep_used(run.step + 1)
        rate.after_step(run.step + 1)

    return take_step_and_move_rate


@final
class BatchFunctions:
    """The functions called before and after the backward pass of a microbatch.

    Decides everything in advance that does not depend on the batch.
    """

    def __init__(self, run: EngineRun) -> None:
        train = (
            check_each_loss(run, run.part(TaskCalls).train)
            if run.is_debug
            else run.part(TaskCalls).train
        )
        self.train = _with_batch_start(run, train)
        """Moves a batch and computes its losses."""

        self.report = _build_report(run)
        """Computes extra metrics and adds the batch to the means."""

        self.measure = _build_measure(run)
        """Updates the metric objects of training."""

        finish = self.report
        if run.train_metrics:
            finish = _chain(finish, self.measure)
        self.finish = _with_batch_end(run, finish)
        """Calls ``report``, ``measure`` and the listeners of ``batch_end``."""


def unprepared_step(*_: object) -> NoReturn:
    """The step of a run that is not prepared to train: it fails."""
    raise AssertionError("the run was not prepared to train")


def _build_report(run: EngineRun) -> FinishBatch:
    calls, meter = run.part(TaskCalls), run.meter
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


def _build_measure(run: EngineRun) -> FinishBatch:
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


def _with_batch_start(run: EngineRun, train: TrainBatch) -> TrainBatch:
    listeners = run.events.listeners("batch_start", "train")
    if not listeners:
        return train

    def notify_and_train(batch: Batch) -> Outcome:
        for listener in listeners:
            run.events.call(listener, run, "train", run.batch_index, batch)
        return train(batch)

    return notify_and_train


def _with_batch_end(run: EngineRun, finish: FinishBatch) -> FinishBatch:
    listeners = run.events.listeners("batch_end", "train")
    if not listeners:
        return finish

    def finish_and_notify(outcome: Outcome) -> None:
        finish(outcome)
        for listener in listeners:
            run.events.call(listener, run, "train", run.batch_index, outcome.batch, outcome.out)

    return finish_and_notify
