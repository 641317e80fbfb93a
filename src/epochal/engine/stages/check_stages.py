"""Checks, before the first step, that a run has what its stages change."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any

from torch.utils.data import DataLoader, IterableDataset

from epochal.engine.interfaces.binding import BY_NAME
from epochal.engine.interfaces.stage import Plateau, merge_task_params
from epochal.engine.optim.select_parameters import ParameterSelector
from epochal.engine.stages.change_optimizer import (
    build_schedule_error,
    check_optim_change,
    find_torch_schedule,
    marking_all_trainable,
    split_change,
)
from epochal.errors import ConfigError, Problem, suggest

if TYPE_CHECKING:
    from epochal.engine.interfaces.stage import OptimChange, Stage
    from epochal.engine.run.engine_run import EngineRun

STAGE_METHOD = "on_stage_start"
"""The method of a task that is called when a stage starts; its arguments are the keys of
``task`` in a stage."""

_RATE_KEYS = ("type", "lr", "groups", "layer_decay", "no_decay")
"""Keys that give other groups, or groups other rates."""

_RUN_ARGUMENTS = ("run", "name")
_LOADER_OPTIONS = (
    *("num_workers", "collate_fn", "pin_memory", "drop_last", "timeout", "worker_init_fn"),
    *("multiprocessing_context", "generator", "prefetch_factor", "persistent_workers"),
    "pin_memory_device",
)


def check_stages(run: EngineRun) -> None:
    """Refuse stages that change what the run does not have; the run stays as it is."""
    selector = ParameterSelector(run.model)
    stages = run.stage_progress.stages
    for index, stage in enumerate(stages):
        if isinstance(stage.until, Plateau) and run.monitor is None:
            what = "a plateau needs a monitor, and the run has none"
            hint = "add monitor: -val/loss, or +val/acc if larger is better"
            raise ConfigError(Problem(f"{stage.key}.until", what, hint=hint))
        for name in ("freeze", "unfreeze"):
            for pattern in getattr(stage, name):
                get_matching_parameters(selector, pattern, f"{stage.key}.{name}")
        if stage.loss:
            _check_loss(run, stage)
        if stage.optim and run.optimizer is None:
            what = "there is no optimizer whose options could change"
            raise ConfigError(Problem(f"{stage.key}.optim", what))
        _check_params(run, stage, merge_task_params(stages[: index + 1]))
        is_loader_known = not any("train" in one.data for one in stages[: index + 1])
        if stage.batch_size is not None and is_loader_known:
            resize_loader(run.feed.loader, stage.batch_size, f"{stage.key}.batch_size")
    if run.optimizer is not None:
        _check_torch_schedule(run, selector)
        _build_optimizers(run)


def _check_torch_schedule(run: EngineRun, selector: ParameterSelector) -> None:
    """Refuse to continue a scheduler of torch with other rates than it began with."""
    schedule = find_torch_schedule(run.schedule)
    if schedule is None or run.optimizer is None:
        return
    held = {id(one) for group in run.optimizer.param_groups for one in group["params"]}
    had_own = False
    for stage in run.stage_progress.stages:
        changes = [own for _, _, own in split_change(run.optimizer, stage.optim)]
        has_other = any(
            one.keys() & {*_RATE_KEYS} or one.get("state") == "reset" for one in changes
        )
        names = [name for pattern in stage.unfreeze for name in selector.by_name(pattern)]
        is_extended = any(id(selector.parameters[name]) not in held for name in names)
        has_other = has_other or (is_extended and run.make_optimizer is not None)
        had_own = had_own or stage.schedule is not None
        if stage.schedule is None and (had_own or has_other):
            raise build_schedule_error(schedule, stage)


def _build_optimizers(run: EngineRun) -> None:
    """Build the optimizer and the schedule of every stage once, so that mistakes show early."""
    assert run.optimizer is not None
    changes: list[OptimChange] = []
    for stage in run.stage_progress.stages:
        changes += [stage.optim] if stage.optim else []
        if run.make_optimizer is None:
            check_optim_change(run.optimizer, stage.optim)
        elif changes or stage.schedule is not None:
            with marking_all_trainable(run):
                made, _ = run.make_optimizer(run.model, changes)
            if stage.schedule is not None:
                stage.schedule(made)


def _check_loss(run: EngineRun, stage: Stage) -> None:
    if run.loss is None:
        what = "there is no section loss whose weights could change"
        hint = f"give the weight to the task: task: {{{next(iter(stage.loss))}: ...}}"
        raise ConfigError(Problem(f"{stage.key}.loss", what, hint=hint))
    before = dict(run.loss.weights)
    run.loss.set_weights(stage.loss)
    run.loss.weights.update(before)


def _check_params(run: EngineRun, stage: Stage, params: dict[str, Any]) -> None:
    """Refuse arguments that the task does not take at the start of a stage, and missing ones."""
    method = getattr(run.task, STAGE_METHOD, None)
    declared = {} if method is None else inspect.signature(method).parameters
    is_open = any(one.kind is one.VAR_KEYWORD for one in declared.values())
    for name in stage.task if not is_open else ():
        if name not in declared or name in _RUN_ARGUMENTS:
            known = [one for one in declared if one not in _RUN_ARGUMENTS]
            what = f"{type(run.task).__name__}.{STAGE_METHOD} takes no {name!r}"
            hint = suggest(name, known) if known else f"write def {STAGE_METHOD}(self, *, {name})"
            raise ConfigError(Problem(f"{stage.key}.task.{name}", what, hint=hint))
    for name, one in declared.items():
        is_needed = one.default is one.empty and one.kind in BY_NAME
        if is_needed and name not in (*_RUN_ARGUMENTS, *params):
            what = f"missing; {type(run.task).__name__}.{STAGE_METHOD} requires it"
            raise ConfigError(Problem(f"{stage.key}.task.{name}", what, hint=f"add {name}: ..."))


def get_matching_parameters(selector: ParameterSelector, pattern: str, key: str) -> set[str]:
    """The names of the parameters that a pattern matches, at least one."""
    found = selector.by_name(pattern)
    if not found:
        hint = selector.suggest_names(pattern)
        raise ConfigError(Problem(key, f"{pattern!r} matches no parameter", hint=hint))
    return found


def resize_loader(loader: object, size: int, key: str) -> DataLoader[Any]:
    """The same loader, a plain one of torch, with another batch size."""
    if type(loader) is not DataLoader or loader.batch_size is None:
        what = f"the training loader, a {type(loader).__name__}, makes its batches itself"
        hint = "let the task change them, through task: in the stage"
        raise ConfigError(Problem(key, what, hint=hint))
    options = {name: getattr(loader, name) for name in _LOADER_OPTIONS}
    sampler = None if isinstance(loader.dataset, IterableDataset) else loader.sampler
    return DataLoader(loader.dataset, batch_size=size, sampler=sampler, **options)
