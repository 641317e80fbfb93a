"""Starts and ends the stages of a run, applies what they change, and finds how long they are."""

from __future__ import annotations

import inspect
import logging
import math
from contextlib import nullcontext
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, final

from epochal.engine.events.events import Listener
from epochal.engine.feed.feed import count_batches, count_samples
from epochal.engine.interfaces.every import Every
from epochal.engine.interfaces.stage import merge_task_params
from epochal.engine.optim.build_rate import warn_of_long_warmup
from epochal.engine.optim.select_parameters import ParameterSelector
from epochal.engine.run.stage_progress import EACH_EPOCH, ScheduleSpan, TrainingLimits
from epochal.engine.stages.change_optimizer import (
    apply_optim_change,
    choose_stage_updater,
    rebinding,
    rebuild_optimizer,
    reset_to_base_rates,
)
from epochal.engine.stages.check_stages import (
    STAGE_METHOD,
    check_stages,
    get_matching_parameters,
    resize_loader,
)
from epochal.engine.step.updater import Updater

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from epochal.config.duration import Duration
    from epochal.engine.feed.feed import Feed
    from epochal.engine.interfaces.stage import Stage
    from epochal.engine.run.engine_run import EngineRun

logger = logging.getLogger(__name__)

_PERIODS_PER_RUN = 20


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


def choose_periods(
    lengths: Iterable[Duration], steps: int | None, steps_per_epoch: int | None
) -> tuple[Every, ...]:
    """When a run that ends inside an epoch evaluates and saves, unless its config says when.

    Some twenty times, or each epoch if that is sooner. They depend on the config and the data
    alone, so that a resumed run has the same.

    Args:
        lengths: Of its stages.
        steps: Their total; None if unknown.
        steps_per_epoch: None if unknown.
    """
    if steps is not None and steps_per_epoch is not None:
        period = math.ceil(steps / _PERIODS_PER_RUN)
        return (EACH_EPOCH,) if steps_per_epoch <= period else (Every(period, "st"),)
    totals = {"st": 0.0, "sa": 0.0, "s": 0.0}
    for length in lengths:
        if length.unit in totals:
            totals[length.unit] += length.amount
    parts = {unit: total / _PERIODS_PER_RUN for unit, total in totals.items() if total}
    return (
        EACH_EPOCH,
        *(Every(part if unit == "s" else math.ceil(part), unit) for unit, part in parts.items()),
    )


def plan_training_end(run: EngineRun) -> None:
    """Plan the end of the stage that the run begins with, and that of ``train.max_time``."""
    run.stage_progress.plan_stage_end(run)
    max_time = run.options.train.max_time
    if max_time is not None:
        end = Every(max_time.amount, max_time.unit)
        run.plan.add_once("stop: max_time", end, lambda run: run.stop("max_time"))


@final
@dataclass(frozen=True, slots=True)
class StageRow:
    """One line of the printed plan."""

    name: str
    first_step: int | None
    """Steps of the run before it; None if that is unknown."""

    end: str
    """When it ends: ``5ep``, ``val/acc >= 0.9``, or both."""

    changes: tuple[str, ...]


def list_stages(run: EngineRun) -> list[StageRow]:
    """The stages of a prepared run, if there are several."""
    progress, rows = run.stage_progress, []
    for index, stage in enumerate(progress.stages if len(progress.stages) > 1 else ()):
        ends = [str(end) for end in (stage.until, stage.length) if end is not None]
        end = ", at most ".join(ends)
        rows.append(StageRow(stage.name, progress.starts[index], end, _list_changes(stage)))
    return rows


def _list_changes(stage: Stage) -> tuple[str, ...]:
    """What a stage changes, as short texts."""
    named = [("optim", stage.optim), ("loss", stage.loss), ("task", stage.task)]
    changes = [f"{owner}.{k}={v}" for owner, values in named for k, v in values.items()]
    changes += ["schedule"] if stage.schedule is not None else []
    changes += [f"freeze {pattern}" for pattern in stage.freeze]
    changes += [f"unfreeze {pattern}" for pattern in stage.unfreeze]
    changes += [f"data.{split}" for split in stage.data]
    changes += [f"batch_size={stage.batch_size}"] if stage.batch_size is not None else []
    return tuple(changes)


def prepare_stages(run: EngineRun) -> None:
    """Bring a run that is not bound yet into the stage in which it starts, or resumes."""
    progress, epoch = run.stage_progress, read_epoch_size(run.feed)
    progress.schedule = run.schedule
    *starts, end = _positions(progress.stages, TrainingPosition(), epoch)
    progress.starts = [start.step for start in starts]
    per_epoch = _epoch_steps(_get_epoch_size(progress.stages[0], epoch))
    progress.run_span = ScheduleSpan(0, end.step, per_epoch)
    if not progress.ends_by_epochs:
        lengths = [stage.length for stage in progress.stages if stage.length is not None]
        progress.auto_periods = choose_periods(lengths, end.step, per_epoch)
    check_stages(run)
    saved = {} if run.resume is None else run.resume.state.get("stage", {})
    if saved:
        progress.load_state_dict(saved, run.monitor)
    _apply(run, progress.stages[: progress.index + 1], is_resumed=bool(saved))
    if progress.changes:
        run.set_part(Updater, choose_stage_updater(run))


def restore_stage_optimizer(run: EngineRun, state: Mapping[str, Any]) -> None:
    """Give the run the optimizer of a checkpoint, regardless of changes by hooks and task."""
    if state and not run.stage_progress.matches_checkpoint(state):
        with rebinding(run):
            run.stage_progress.changes = list(state["changes"])
            rebuild_optimizer(run)


def announce_stage(run: EngineRun) -> None:
    """Tell task and hooks that the current stage starts, or resumes."""
    progress, stage = run.stage_progress, run.stage_progress.stage
    if len(progress.stages) > 1:
        ends = [("for", stage.length), ("until", stage.until)]
        text = "".join(f" {word} {end}" for word, end in ends if end is not None)
        number = f"{progress.index + 1} of {len(progress.stages)}"
        logger.info("stage %s: %s%s", number, stage.name, text)
        if run.resume is None:
            run.writer.event("stage_start", step=run.step, name=stage.name, index=progress.index)
    if progress.index == 0 or stage.schedule is not None:
        span = progress.schedule_span
        warn_of_long_warmup(run.schedule, span.steps, span.per_epoch)
    _call_task(run)
    run.fire("stage_start", stage.name)


def end_stage(run: EngineRun) -> None:
    """Tell hooks that the current stage is over."""
    progress = run.stage_progress
    run.meter.deliver()
    run.fire("stage_end", progress.stage.name)
    if len(progress.stages) > 1:
        reason = progress.end_reason or run.stop_reason
        run.writer.event("stage_end", step=run.step, name=progress.stage.name, reason=reason)


def start_next_stage(run: EngineRun) -> None:
    """End the current stage and start the next one at the run's position."""
    end_stage(run)
    apply_next_stage(run)
    run.stage_progress.plan_stage_end(run)
    announce_stage(run)
    run.plan.start(run)
    run.rate.adopt()


def apply_next_stage(run: EngineRun) -> None:
    """Make the next stage the current one, with all that it changes; no event is fired."""
    run.stage_progress.advance(run)
    with rebinding(run) if run.optimizer is not None else nullcontext():
        _apply(run, (run.stage_progress.stage,))


def _apply(run: EngineRun, stages: Sequence[Stage], *, is_resumed: bool = False) -> None:
    """Apply what some stages change, of which the last one is the current one.

    If ``is_resumed``, the changes of the optimizer are those of the checkpoint.
    """
    for stage in stages:
        _freeze(run, stage)
        if stage.loss and run.loss is not None:
            run.loss.set_weights(stage.loss)
    _set_loaders(run, stages)
    progress = run.stage_progress
    if is_resumed and progress.changes and run.optimizer is not None:
        rebuild_optimizer(run)
    elif not is_resumed and (progress.stage.optim or _has_unoptimized_parameters(run)):
        apply_optim_change(run, progress.stage.optim)
    _count_steps(run)
    _choose_schedule(run)


def _call_task(run: EngineRun) -> None:
    """Call the task's ``on_stage_start`` with the arguments that it declares."""
    method, progress = getattr(run.task, STAGE_METHOD, None), run.stage_progress
    if method is None:
        return
    params = {"run": run, "name": progress.stage.name}
    params |= merge_task_params(progress.stages[: progress.index + 1])
    declared = inspect.signature(method).parameters
    is_open = any(one.kind is one.VAR_KEYWORD for one in declared.values())
    given = {name: value for name, value in params.items() if is_open or name in declared}
    owner = f"{type(run.task).__name__}.{STAGE_METHOD}"
    run.events.call(Listener("stage_start", lambda _: method(**given), owner), run)


def _freeze(run: EngineRun, stage: Stage) -> None:
    """Freeze parameters of the model, or train them again."""
    if not stage.freeze and not stage.unfreeze:
        return
    selector = ParameterSelector(run.model)
    for name, is_trained in (("freeze", False), ("unfreeze", True)):
        for pattern in getattr(stage, name):
            for member in get_matching_parameters(selector, pattern, f"{stage.key}.{name}"):
                parameter = selector.parameters[member]
                parameter.requires_grad_(is_trained)
                parameter.grad = None


def _has_unoptimized_parameters(run: EngineRun) -> bool:
    """Whether the stage trains parameters that the optimizer lacks and can get."""
    if run.optimizer is None or run.make_optimizer is None or not run.stage_progress.stage.unfreeze:
        return False
    held = {id(one) for group in run.optimizer.param_groups for one in group["params"]}
    return any(one.requires_grad and id(one) not in held for one in run.model.parameters())


def _choose_schedule(run: EngineRun) -> None:
    """Give the run the schedule of its stage, which starts with the rates before any schedule."""
    make, optimizer = run.stage_progress.stage.schedule, run.optimizer
    if optimizer is None or (make is None and run.schedule is run.stage_progress.schedule):
        return
    reset_to_base_rates(optimizer)
    run.schedule = run.stage_progress.schedule if make is None else make(optimizer)


def _set_loaders(run: EngineRun, stages: Iterable[Stage]) -> None:
    """Give the task the loaders of some stages, the last one of each split."""
    loaders = {split: build for stage in stages for split, build in stage.data.items()}
    for split, build in loaders.items():
        setattr(run.task, f"{split}_loader", build())
    last = next((one for one in reversed([*stages]) if one.has_new_batches), None)
    if last is not None and last.batch_size is not None:
        key = f"{last.key}.batch_size"
        run.task.train_loader = resize_loader(run.feed.loader, last.batch_size, key)
    if loaders:
        run.bind()


def _count_steps(run: EngineRun) -> None:
    """Find how long the current stage is, and the run with all stages after it."""
    progress, epoch = run.stage_progress, read_epoch_size(run.feed)
    start = int(progress.stage_start["st"])
    position = TrainingPosition(start, int(progress.stage_start["ep"]), progress.stage_start_batch)
    end = position.after(progress.stage.length, epoch)
    progress.set_stage_length(None if end.step is None else end.step - start, _epoch_steps(epoch))
    *_, end = _positions(progress.stages[progress.index + 1 :], end, epoch)
    times = [stage.length for stage in progress.stages] if len(progress.stages) == 1 else []
    run.limits = find_limits(end, [*times, run.options.train.max_time])


def _positions(
    stages: Iterable[Stage], start: TrainingPosition, epoch: EpochSize
) -> Iterator[TrainingPosition]:
    """Where each stage starts and where the last one ends, if the length of the data is known."""
    yield start
    for stage in stages:
        epoch = _get_epoch_size(stage, epoch)
        if stage.has_new_batches and start.batch:
            next_epoch = None if start.epoch is None else start.epoch + 1
            start = TrainingPosition(start.step, next_epoch, 0)
        start = start.after(stage.length, epoch)
        yield start


def _get_epoch_size(stage: Stage, epoch: EpochSize) -> EpochSize:
    """The size of an epoch in a stage, after another size before it."""
    accumulate = stage.optim.get("accumulate", epoch.accumulate)
    if "train" in stage.data:
        return EpochSize(accumulate=accumulate)
    epoch = replace(epoch, accumulate=accumulate)
    return epoch if stage.batch_size is None else epoch.with_batch_size(stage.batch_size)


def _epoch_steps(epoch: EpochSize) -> int | None:
    return None if epoch.batches is None else epoch.steps()
