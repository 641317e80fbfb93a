"""What stages ask for, compared with what a run has, before its first step."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any

from torch.utils.data import DataLoader, IterableDataset

from epochal.engine.optim.parameter_selector import ParameterSelector
from epochal.engine.stages.change_optimizer import (
    RATE_KEYS,
    build_schedule_error,
    check_optim_change,
    find_torch_schedule,
    marking_all_trainable,
    split_change_by_optimizer,
)
from epochal.engine.stages.stage import merge_task_params, require_monitor
from epochal.errors import ConfigError, Problem, suggest

if TYPE_CHECKING:
    from collections.abc import Iterable

    from epochal.engine.run import Run
    from epochal.engine.stages.stage import OptimChange, Stage

STAGE_METHOD = "on_stage_start"
"""The method of a task that is told of a stage; its further arguments say what it may be told."""

_RUN_ARGUMENTS = ("run", "name")
_BY_NAME = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
_LOADER_OPTIONS = (
    *("num_workers", "collate_fn", "pin_memory", "drop_last", "timeout", "worker_init_fn"),
    *("multiprocessing_context", "generator", "prefetch_factor", "persistent_workers"),
    "pin_memory_device",
)


def check_stages(run: Run) -> None:
    """Refuse stages that ask for what the run does not have; nothing is changed.

    Raises:
        ConfigError: There is one.
    """
    require_monitor(run.course, run.monitor)
    selector = ParameterSelector(run.model)
    for stage in run.course.stages:
        for name in ("freeze", "unfreeze"):
            for pattern in getattr(stage, name):
                get_matching_parameters(selector, pattern, f"{stage.key}.{name}")
        if stage.loss:
            _check_loss(run, stage)
        if stage.optim and run.optimizer is None:
            what = "there is no optimizer whose options could change"
            raise ConfigError(Problem(f"{stage.key}.optim", what))
        _check_params(run, stage)
    _check_batch_sizes(run)
    _check_schedules(run, selector)
    if run.optimizer is not None:
        _check_optimizer_changes(run, run.course.stages)


def _check_schedules(run: Run, selector: ParameterSelector) -> None:
    """Refuse to let a scheduler of torch go on with other rates than it began with."""
    schedule = find_torch_schedule(run.schedule)
    if schedule is None or run.optimizer is None:
        return
    had_own = False
    for stage in run.course.stages:
        wishes = split_change_by_optimizer(run.optimizer, stage.optim).values()
        has_other = any(one.keys() & {*RATE_KEYS} or one.get("state") == "reset" for one in wishes)
        has_other = has_other or _joins_optimizer(run, stage, selector)
        had_own = had_own or stage.schedule is not None
        if stage.schedule is None and (had_own or has_other):
            raise build_schedule_error(schedule, stage)


def _joins_optimizer(run: Run, stage: Stage, selector: ParameterSelector) -> bool:
    """Whether a stage trains what the optimizer does not have, which makes another one of it."""
    assert run.optimizer is not None
    held = {id(one) for group in run.optimizer.param_groups for one in group["params"]}
    names = (name for pattern in stage.unfreeze for name in selector.by_name(pattern))
    is_new = any(id(selector.parameters[name]) not in held for name in names)
    return is_new and run.make_optimizer is not None


def _check_optimizer_changes(run: Run, stages: Iterable[Stage]) -> None:
    """Make the optimizer and the schedule of every stage once, so that mistakes show early."""
    changes: list[OptimChange] = []
    for stage in stages:
        made = run.optimizer
        assert made is not None
        changes += [stage.optim] if stage.optim else []
        if run.make_optimizer is None:
            check_optim_change(made, stage.optim)
            made = None  # a schedule would change it
        elif changes or stage.schedule is not None:
            with marking_all_trainable(run):
                made, _ = run.make_optimizer(run.model, changes)
        if stage.schedule is not None and made is not None:
            stage.schedule(made)


def _check_batch_sizes(run: Run) -> None:
    for stage in run.course.stages:
        if "train" in stage.data:
            return  # its loaders are not there yet
        if stage.batch_size is not None:
            resize_loader(run.feed.loader, stage.batch_size, f"{stage.key}.batch_size")


def _check_loss(run: Run, stage: Stage) -> None:
    if run.loss is None:
        what = "there is no section loss whose weights could change"
        hint = f"give the weight to the task: task: {{{next(iter(stage.loss))}: ...}}"
        raise ConfigError(Problem(f"{stage.key}.loss", what, hint=hint))
    kept = dict(run.loss.weights)
    run.loss.set_weights(stage.loss)
    run.loss.weights.update(kept)


def _check_params(run: Run, stage: Stage) -> None:
    """Refuse what the task does not take when a stage begins, and what it misses then."""
    stages = run.course.stages
    params = merge_task_params(stages[: stages.index(stage) + 1])
    method = getattr(run.task, STAGE_METHOD, None)
    declared = {} if method is None else inspect.signature(method).parameters
    kinds = {one.kind for one in declared.values()}
    is_open = inspect.Parameter.VAR_KEYWORD in kinds
    for name in stage.task if not is_open else ():
        if name not in declared or name in _RUN_ARGUMENTS:
            known = [one for one in declared if one not in _RUN_ARGUMENTS]
            what = f"{type(run.task).__name__}.{STAGE_METHOD} takes no {name!r}"
            hint = suggest(name, known) if known else f"write def {STAGE_METHOD}(self, *, {name})"
            raise ConfigError(Problem(f"{stage.key}.task.{name}", what, hint=hint))
    for name, one in declared.items():
        is_needed = one.default is one.empty and one.kind in _BY_NAME
        if is_needed and name not in (*_RUN_ARGUMENTS, *params):
            what = f"missing; {type(run.task).__name__}.{STAGE_METHOD} requires it"
            raise ConfigError(Problem(f"{stage.key}.task.{name}", what, hint=f"add {name}: ..."))


def get_matching_parameters(selector: ParameterSelector, pattern: str, key: str) -> set[str]:
    """The parameters that a pattern means.

    Raises:
        ConfigError: There are none.
    """
    found = selector.by_name(pattern)
    if not found:
        hint = selector.suggest_names(pattern)
        raise ConfigError(Problem(key, f"{pattern!r} matches no parameter", hint=hint))
    return found


def resize_loader(loader: object, size: int, key: str) -> DataLoader[Any]:
    """The same loader with batches of another size.

    Raises:
        ConfigError: It is no plain loader of torch.
    """
    if type(loader) is not DataLoader or loader.batch_size is None:
        what = f"the training loader, a {type(loader).__name__}, makes its batches itself"
        hint = "let the task change them, through task: in the stage"
        raise ConfigError(Problem(key, what, hint=hint))
    options = {name: getattr(loader, name) for name in _LOADER_OPTIONS}
    sampler = None if isinstance(loader.dataset, IterableDataset) else loader.sampler
    return DataLoader(loader.dataset, batch_size=size, sampler=sampler, **options)
