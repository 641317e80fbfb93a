"""What a stage changes, applied to a run when the stage begins."""

from __future__ import annotations

import inspect
import logging
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, final

from epochal.engine.events.events import call_listener
from epochal.engine.events.listeners import Listener
from epochal.engine.optim.parameter_selector import ParameterSelector
from epochal.engine.stages.change_optimizer import (
    apply_optim_change,
    find_updater,
    rebinding,
    rebuild_optimizer,
    reset_to_base_rates,
    set_update_options,
)
from epochal.engine.stages.check_stages import (
    STAGE_METHOD,
    check_stages,
    get_matching_parameters,
    resize_loader,
)
from epochal.engine.stages.stage import ScheduleSpan, merge_task_params
from epochal.engine.stages.training_length import (
    EpochSize,
    TrainingPosition,
    find_limits,
    read_epoch_size,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from epochal.engine.run import Run
    from epochal.engine.stages.stage import Stage

logger = logging.getLogger(__name__)


@final
@dataclass(frozen=True, slots=True)
class StageRow:
    """One line of the printed plan."""

    name: str
    first_step: int | None
    """Steps of the run before it; None if nobody knows."""

    end: str
    """When it is over: ``5ep``, ``val/acc >= 0.9``, or both."""

    changes: tuple[str, ...]


def list_stages(run: Run) -> list[StageRow]:
    """The stages of a run that is prepared, if there are several."""
    course, rows = run.course, []
    for index, stage in enumerate(course.stages if len(course.stages) > 1 else ()):
        start = course.starts[index]
        ends = [str(end) for end in (stage.until, stage.length) if end is not None]
        rows.append(StageRow(stage.name, start, ", at most ".join(ends), _changes(stage)))
    return rows


def _changes(stage: Stage) -> tuple[str, ...]:
    """What a stage changes, as people would write it."""
    named = [("optim", stage.optim), ("loss", stage.loss), ("task", stage.task)]
    changes = [f"{owner}.{k}={v}" for owner, values in named for k, v in values.items()]
    changes += ["schedule"] if stage.schedule is not None else []
    changes += [f"freeze {pattern}" for pattern in stage.freeze]
    changes += [f"unfreeze {pattern}" for pattern in stage.unfreeze]
    changes += [f"data.{split}" for split in stage.data]
    changes += [f"batch_size={stage.batch_size}"] if stage.batch_size is not None else []
    return tuple(changes)


def prepare_stages(run: Run) -> None:
    """Bring a run that is not bound yet into the stage in which it begins, or goes on.

    Raises:
        ConfigError: Some stage asks for what the run does not have.
        CheckpointError: The checkpoint is of a stage that is not there.
    """
    course = run.course
    course.schedule = run.schedule
    *starts, end = _positions(course.stages, TrainingPosition(), read_epoch_size(run.feed))
    course.starts = [start.step for start in starts]
    course.whole = ScheduleSpan(
        0, end.step, _steps_of(_get_epoch_size(course.stages[0], read_epoch_size(run.feed)))
    )
    check_stages(run)
    saved = {} if run.resume is None else run.resume.state.get("stage", {})
    if saved:
        course.load_state_dict(saved, run.monitor)
    stages = course.stages[: course.index + 1]
    for stage in stages:
        _freeze(run, stage)
        if stage.loss and run.loss is not None:
            run.loss.set_weights(stage.loss)
    _set_loaders(run, stages)
    _prepare_optimizer(run, is_resumed=bool(saved))
    _count_steps(run)
    _choose_schedule(run)


def restore_stage_optimizer(run: Run, state: Mapping[str, Any]) -> None:
    """Have the optimizer of a checkpoint, whatever hooks and task changed again on the way here."""
    course = run.course
    if not state or course.matches_checkpoint(state):
        return
    with rebinding(run):
        course.changes = list(state["changes"])
        if run.make_optimizer is None:  # the options of its groups come back with the optimizer
            set_update_options(run, course.changes)
        else:
            rebuild_optimizer(run)


def announce_stage(run: Run) -> None:
    """Tell the task and everybody else that the current stage begins, or goes on."""
    course = run.course
    if len(course.stages) > 1:
        number = f"{course.index + 1} of {len(course.stages)}"
        logger.info("stage %s: %s%s", number, course.stage.name, _describe(course.stage))
        if run.resume is None:
            facts = {"name": course.stage.name, "index": course.index}
            run.writer.event("stage_start", step=run.step, **facts)
    _tell_task(run)
    run.fire("stage_start", course.stage.name)


def end_stage(run: Run) -> None:
    """Tell everybody that the current stage is over."""
    course = run.course
    run.meter.deliver()
    run.fire("stage_end", course.stage.name)
    if len(course.stages) > 1:
        reason = course.over or run.stop_reason
        run.writer.event("stage_end", step=run.step, name=course.stage.name, reason=reason)


def start_next_stage(run: Run) -> None:
    """End the current stage, and begin the one after it at the run's position."""
    end_stage(run)
    apply_next_stage(run)
    run.course.plan_stage_end(run)
    announce_stage(run)
    run.plan.start(run)
    run.updater.rate.adopt()


def apply_next_stage(run: Run) -> None:
    """Let the next stage be the current one, with all that it changes; nobody is told."""
    run.course.advance(run)
    stage = run.course.stage
    if run.optimizer is None:
        _apply(run, stage)
    else:
        with rebinding(run):
            _apply(run, stage)


def _apply(run: Run, stage: Stage) -> None:
    _freeze(run, stage)
    if stage.loss and run.loss is not None:
        run.loss.set_weights(stage.loss)
    _set_loaders(run, (stage,))
    if stage.optim or _has_unoptimized_parameters(run):
        apply_optim_change(run, stage.optim)
    _count_steps(run)
    _choose_schedule(run)


def _tell_task(run: Run) -> None:
    """Call the task's ``on_stage_start`` with what holds for it in this stage."""
    method, course = getattr(run.task, STAGE_METHOD, None), run.course
    if method is None:
        return
    params = {"run": run, "name": course.stage.name} | merge_task_params(
        course.stages[: course.index + 1]
    )
    declared = inspect.signature(method).parameters
    is_open = any(one.kind is one.VAR_KEYWORD for one in declared.values())
    wanted = {name: value for name, value in params.items() if is_open or name in declared}
    owner = f"{type(run.task).__name__}.{STAGE_METHOD}"
    call_listener(Listener("stage_start", lambda _: method(**wanted), owner), run)


def _freeze(run: Run, stage: Stage) -> None:
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


def _has_unoptimized_parameters(run: Run) -> bool:
    """Whether something is trained now that the optimizer does not have, and could have."""
    if run.optimizer is None or run.make_optimizer is None or not run.course.stage.unfreeze:
        return False
    held = {id(one) for group in run.optimizer.param_groups for one in group["params"]}
    return any(one.requires_grad and id(one) not in held for one in run.model.parameters())


def _prepare_optimizer(run: Run, *, is_resumed: bool) -> None:
    course = run.course
    if run.optimizer is None:
        return
    if not is_resumed and (course.stage.optim or _has_unoptimized_parameters(run)):
        if run.make_optimizer is None:
            apply_optim_change(run, course.stage.optim)
        else:
            course.changes.append(course.stage.optim)
    if course.changes and run.make_optimizer is not None:
        rebuild_optimizer(run)
        run.updater = find_updater(run)
    elif is_resumed:  # the options of its groups come back with the optimizer
        set_update_options(run, course.changes)


def _choose_schedule(run: Run) -> None:
    """Give the run the schedule of its stage, which begins with the rates before any schedule."""
    course = run.course
    if course.stage.schedule is not None and run.optimizer is not None:
        reset_to_base_rates(run.optimizer)
        run.schedule = course.stage.schedule(run.optimizer)
    elif run.schedule is not course.schedule and run.optimizer is not None:
        reset_to_base_rates(run.optimizer)
        run.schedule = course.schedule


def _set_loaders(run: Run, stages: Iterable[Stage]) -> None:
    """Give the task the loaders of some stages, of each split the last one."""
    builds = {split: build for stage in stages for split, build in stage.data.items()}
    size, key = None, ""
    for stage in stages:
        if stage.has_new_batches:
            size, key = stage.batch_size, stage.key
    for split, build in builds.items():
        setattr(run.task, f"{split}_loader", build())
    if size is not None:
        run.task.train_loader = resize_loader(run.feed.loader, size, f"{key}.batch_size")
    if builds:
        run.bind()


def _count_steps(run: Run) -> None:
    """Find how long the current stage takes, and the run with all that come after it."""
    course, epoch = run.course, read_epoch_size(run.feed)
    first = TrainingPosition(int(course.first["st"]), int(course.first["ep"]), course.first_batch)
    end = first.after(course.stage.length, epoch)
    steps = None if end.step is None else end.step - int(course.first["st"])
    course.measure(steps, _steps_of(epoch))
    *_, end = _positions(course.stages[course.index + 1 :], end, epoch)
    times = [stage.length for stage in course.stages] if len(course.stages) == 1 else []
    run.limits = find_limits(end, [*times, run.options.train.max_time])


def _positions(
    stages: Iterable[Stage], start: TrainingPosition, epoch: EpochSize
) -> Iterator[TrainingPosition]:
    """Where each stage begins, and where the last one ends, as far as data are there already."""
    yield start
    for stage in stages:
        epoch = _get_epoch_size(stage, epoch)
        if stage.has_new_batches and start.batch:
            start = TrainingPosition(
                start.step, None if start.epoch is None else start.epoch + 1, 0
            )
        start = start.after(stage.length, epoch)
        yield start


def _get_epoch_size(stage: Stage, epoch: EpochSize) -> EpochSize:
    """What an epoch is in a stage, if it was another one before."""
    accumulate = stage.optim.get("accumulate", epoch.accumulate)
    if "train" in stage.data:
        return EpochSize(accumulate=accumulate)
    epoch = replace(epoch, accumulate=accumulate)
    return epoch if stage.batch_size is None else epoch.resized(stage.batch_size)


def _steps_of(epoch: EpochSize) -> int | None:
    return None if epoch.batches is None else epoch.steps()


def _describe(stage: Stage) -> str:
    parts = [f" for {stage.length}" if stage.length is not None else ""]
    parts += [f" until {stage.until}" if stage.until is not None else ""]
    return "".join(parts)
