"""The two halves of a training microbatch, with batch hooks only if there are any."""

from __future__ import annotations

from typing import TYPE_CHECKING, NoReturn

import torch

from epochal.engine.events import tell

if TYPE_CHECKING:
    from collections.abc import Callable

    from epochal.engine.outcome import Outcome
    from epochal.engine.run import Run
    from epochal.engine.task import Batch

    TrainBatch = Callable[[Batch], Outcome]
    FinishBatch = Callable[[Outcome], None]


def build_batch_functions(run: Run) -> tuple[TrainBatch, FinishBatch]:
    """What comes before a microbatch's backward pass, and what comes after it.

    The first moves the batch and goes as far as the loss; the second counts it into the
    averages. Nothing is asked per batch that is known now.
    """
    calls, meter = run.calls, run.meter

    def finish(outcome: Outcome) -> None:
        calls.report(outcome, meter)

    finish_batch = _with_batch_end(run, _with_metrics(run, finish))
    return _with_batch_start(run, calls.train), finish_batch


def no_step(*_: object) -> NoReturn:
    """Stand in for the step of a run that is not prepared to train."""
    raise AssertionError("the run was not prepared to train")


def _with_metrics(run: Run, finish: FinishBatch) -> FinishBatch:
    metrics = tuple(run.train_metrics.values())
    if not metrics:
        return finish

    def finish_and_measure(outcome: Outcome) -> None:
        finish(outcome)
        with torch.no_grad():
            for metric in metrics:
                metric.update(outcome.out, outcome.batch)

    return finish_and_measure


def _with_batch_start(run: Run, train: TrainBatch) -> TrainBatch:
    listeners = run.events.listeners("batch_start", "train")
    if not listeners:
        return train

    def tell_and_train(batch: Batch) -> Outcome:
        for listener in listeners:
            tell(listener, run, "train", run.batch_index, batch)
        return train(batch)

    return tell_and_train


def _with_batch_end(run: Run, finish: FinishBatch) -> FinishBatch:
    listeners = run.events.listeners("batch_end", "train")
    if not listeners:
        return finish

    def finish_and_tell(outcome: Outcome) -> None:
        finish(outcome)
        for listener in listeners:
            tell(listener, run, "train", run.batch_index, outcome.batch, outcome.out)

    return finish_and_tell
