"""The training loop: steps in order, and between them everything that is due."""

from __future__ import annotations

from typing import TYPE_CHECKING

from epochal.engine.evaluate import (
    gather_train_metrics,
    join_metrics,
    log_interval_means,
    update_monitor,
)
from epochal.engine.process.signals import is_interrupted_or_preempted
from epochal.engine.resume import is_inside_epoch, resume_from
from epochal.engine.rollback import roll_back
from epochal.engine.stages.transition import end_stage, restore_stage_optimizer, start_next_stage
from epochal.engine.state.saver import save_if_requested
from epochal.engine.step.shared_step import share_model
from epochal.engine.step.updater import Updater
from epochal.records.metrics.points import EPOCH_MEAN_PREFIX, INTERVAL_MEAN_PREFIX

if TYPE_CHECKING:
    from epochal.engine.measure.meter import Window
    from epochal.engine.run.engine_run import EngineRun


def train(run: EngineRun) -> None:
    """Train epoch after epoch, through all stages, until the run has a reason to stop."""
    epoch_means = run.pass_means = run.meter.window("epoch")
    if not run.stage_progress.ends_by_epochs:
        run.interval_means = run.meter.window("interval")
    if run.count_unit != "samples":
        run.counts = run.meter.window("counts")
    run.plan.start(run)
    resume_if_requested(run)
    if run.interval_means is None:  # a part measured in steps may have left some
        for name in [name for name in run.latest if name.startswith(INTERVAL_MEAN_PREFIX)]:
            del run.latest[name]
    while run.is_in_epoch or not run.stop_reason:
        if not run.is_in_epoch and not run.stage_progress.end_reason:
            start_epoch(run)
        if not run.stop_reason and not run.stage_progress.end_reason:
            share_model(run)
            with run.clock.times.training():
                take_steps(run)
        if roll_back(run, epoch_means, start_epoch):
            continue
        if is_interrupted_or_preempted(run):
            return  # a resumed run continues this epoch
        if run.is_in_epoch and is_epoch_over(run):
            finish_epoch(run, epoch_means)
        if run.stage_progress.end_reason and not run.stop_reason:
            start_next_stage(run)
            save_if_requested(run)
    if not is_interrupted_or_preempted(run):
        end_stage(run)
        if not any(name.startswith(INTERVAL_MEAN_PREFIX) for name in run.latest):
            log_interval_means(run)


def resume_if_requested(run: EngineRun) -> None:
    """Restore the checkpoint that the run resumes from, if any, inside an epoch or before one."""
    point = run.resume
    if point is None:
        save_if_requested(run)
        return
    if is_inside_epoch(point):
        start_epoch(run)
    restore_stage_optimizer(run, point.state.get("stage", {}))
    run.resume = None
    resume_from(run, point)
    run.is_between_steps = True
    run.plan.catch_up(run)
    run.is_between_steps = False


def take_steps(run: EngineRun) -> None:
    """Take the steps of one epoch, or fewer if the run stops or diverges."""
    run.is_between_steps = True
    for microbatches in run.feed.epoch(run.epoch):
        run.is_between_steps = False
        run.take_step(microbatches)
        run.step += 1
        run.is_between_steps = True
        if run.step >= run.plan.next_due:
            run.plan.run_due(run)
            if run.stop_reason or run.diverged_at is not None:
                break
    run.is_between_steps = False


def is_epoch_over(run: EngineRun) -> bool:
    """Whether the epoch ends here; otherwise the next stage continues it."""
    if run.stage_progress.next_stage_ends_epoch:
        run.feed.is_complete = True  # the next stage starts a new epoch
    return bool(run.stop_reason) or run.feed.is_complete


def start_epoch(run: EngineRun) -> None:
    """Start an epoch with reset metrics; modules keep the training mode that hooks gave them."""
    run.is_in_epoch = True
    run.feed.is_complete = False
    run.feed.position = run.feed.next_position = 0  # also for a save before the first batch
    for metric in run.train_metrics.values():
        metric.reset()
    run.fire("epoch_start", "train")
    run.fire("loop_start", "train")
    run.rate.adopt()
    average = run.part(Updater).average
    if average is not None:
        average.admit(run.model)


def finish_epoch(run: EngineRun, epoch_means: Window) -> None:
    """End an epoch: record its means, fire its events, run what is due between epochs.

    An epoch that was cut short fires its events too, but does not count as completed.
    """
    run.meter.deliver()
    run.rate.keep_used(run.step)
    run.fire("loop_end", "train")
    means = epoch_means.read()
    if means:  # empty if the run stopped before the first step of the epoch
        means = join_metrics(run, "train", means, gather_train_metrics(run))
    metrics = {f"train/{name}": value for name, value in means.items()}
    run.log({f"{EPOCH_MEAN_PREFIX}{name}": value for name, value in means.items()})
    run.latest |= metrics
    if metrics:
        update_monitor(run, "train", metrics)
    run.fire("epoch_end", "train", metrics)
    run.is_in_epoch = False
    if run.feed.is_complete:
        run.epoch += 1
        run.rate.after_epoch(run.step)
        run.is_between_steps = True
        run.plan.run_due_between_epochs(run)
        run.is_between_steps = False
