"""Changes the optimizer of a run between two steps: its options, its state or its class."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import fields, replace
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from epochal.engine.interfaces.options import OptimOptions
from epochal.engine.interfaces.schedule import OptimizerSchedules, TorchSchedule, Warmup
from epochal.engine.optim.multi_optimizer import Optimizers, list_optimizers
from epochal.engine.optim.rate import read_rate
from epochal.engine.state.optimizer_state import IMPLEMENTATION_OPTIONS
from epochal.engine.step.updater import ClosureUpdater, Updater, choose_updater
from epochal.errors import ConfigError, Problem, TaskError, suggest

if TYPE_CHECKING:
    from collections.abc import Iterator

    from torch.optim import Optimizer

    from epochal.engine.interfaces.schedule import AnySchedule
    from epochal.engine.interfaces.stage import OptimChange, Stage
    from epochal.engine.run.engine_run import EngineRun

_STATE_CHOICES = ("keep", "reset")
_CONFIG_ONLY_KEYS = ("type", "groups", "layer_decay", "no_decay", "freeze")
"""Keys that need an optimizer described by a config."""

_UPDATE_KEYS = frozenset(one.name for one in fields(OptimOptions)) - {*_CONFIG_ONLY_KEYS}
"""Keys that say how updates are made, with any optimizer."""


def change_optim(run: EngineRun, **changes: object) -> None:
    """Change keys of the section ``optim``: what ``run.change_optim`` does."""
    if not run.has_started or run.optimizer is None:
        raise TaskError(
            "change_optim: only a run that trains has an optimizer to change\n"
            "  call it from run_start on, between two steps; before that, change run.optimizer"
        )
    change = {name: _to_plain(value) for name, value in changes.items()}
    with rebinding(run):
        apply_optim_change(run, change)
    if run.resume is None:  # else the run repeats on its way to the checkpoint what it recorded
        run.writer.event("optim_changed", step=run.step, changes=change)


def _to_plain(value: object) -> object:
    """A class as its dotted path, a tensor as its number, everything else unchanged."""
    if isinstance(value, Tensor):
        return read_rate(value)
    return f"{value.__module__}.{value.__qualname__}" if isinstance(value, type) else value


@contextmanager
def rebinding(run: EngineRun) -> Iterator[None]:
    """Change optimizer, schedule or options in a block; then bind updater, task and step again.

    The owner of the learning rate stays if it has the same rates as before. A scheduler of torch
    cannot continue with another optimizer or other rates.
    """
    assert run.optimizer is not None
    progress, optimizer, schedule = run.stage_progress, run.optimizer, run.schedule
    bases, changes = _read_base_rates(run), list(progress.changes)
    yield
    has_same_rates = (
        optimizer is run.optimizer and schedule is run.schedule and bases == _read_base_rates(run)
    )
    scheduler = find_torch_schedule(run.schedule)
    is_new = schedule is not run.schedule and progress.stage.schedule is not None
    if scheduler is not None and not has_same_rates and not is_new:
        raise build_schedule_error(scheduler, progress.stage)
    if not has_same_rates or progress.changes != changes:
        old, new = run.part(Updater), choose_stage_updater(run)
        new.guard, new.average, new.noise = old.guard, old.average, old.noise
        run.set_part(Updater, new)
        progress.pinned_rate = run.rate if has_same_rates else None
        try:
            new.bind(run)
        finally:
            progress.pinned_rate = None
    run.bind()
    run.feed.static_inputs.set_targets([])  # the captured step is discarded
    run.choose_step()


def apply_optim_change(run: EngineRun, change: OptimChange) -> None:
    """Give the run the optimizer and the options that a change of ``optim`` leads to.

    If the change cannot be made, nothing has changed.
    """
    assert run.optimizer is not None
    for key, _, own in split_change(run.optimizer, change):
        state = own.get("state")
        if state is not None and state not in _STATE_CHOICES:
            hint = suggest(str(state), _STATE_CHOICES)
            raise ConfigError(Problem(f"{key}.state", f"unknown state {state!r}", hint=hint))
    run.stage_progress.changes.append(change)
    try:
        rebuild_optimizer(run, change)
    except BaseException:
        run.stage_progress.changes.pop()
        raise


def split_change(
    optimizer: Optimizer, change: OptimChange
) -> list[tuple[str, Optimizer, OptimChange]]:
    """The key in the config and the changes of each optimizer: of one, or of several."""
    if not isinstance(optimizer, Optimizers):
        return [("optim", optimizer, change)]
    return [(f"optim.{one.name}", one.optimizer, change.get(one.name) or {}) for one in optimizer]


def rebuild_optimizer(run: EngineRun, change: OptimChange | None = None) -> None:
    """Give the run the optimizer and options that the changes in ``run.stage_progress`` lead to.

    Each parameter keeps its state in an optimizer of the same class. The last change, if it is
    new, may say that the state is reset, or must be kept. The optimizer itself stays if only
    options differ, since schedulers of torch and hooks of the user refer to it.
    """
    before = run.optimizer
    assert before is not None
    if run.make_optimizer is None:
        _change_given_optimizer(run, change or {})
        return
    with marking_all_trainable(run):
        made, options = run.make_optimizer(run.model, run.stage_progress.changes)
    parts = split_change(before, change or {})
    keeps_state = []
    for (key, old, own), new in zip(parts, list_optimizers(made), strict=True):
        state, is_same = own.get("state"), type(new) is type(old)
        if not is_same and state == "keep":
            what = f"cannot be kept from {type(old).__name__} to {type(new).__name__}"
            hint = "write state: reset, or leave it out"
            raise ConfigError(Problem(f"{key}.state", f"the state {what}", hint=hint))
        keeps_state.append(is_same and state != "reset")
    set_options(run, options)
    if all(keeps_state) and _read_group_layout(made) == _read_group_layout(before):
        _copy_options(run, made)
        return
    pairs = zip(list_optimizers(before), list_optimizers(made), keeps_state, strict=True)
    for old, new, is_kept in pairs:
        if is_kept:
            _copy_state(old, new)
    run.optimizer = made
    schedule = run.stage_progress.schedule
    if isinstance(schedule, OptimizerSchedules) and isinstance(made, Optimizers):
        members = {name: (made[name], own) for name, (_, own) in schedule.members.items()}
        run.stage_progress.schedule = OptimizerSchedules(members)
        run.schedule = run.stage_progress.schedule if run.schedule is schedule else run.schedule


def set_options(run: EngineRun, options: OptimOptions) -> None:
    """Give the run other options of ``optim``."""
    run.options = replace(run.options, optim=options)
    if run.feed.accumulate != options.accumulate:
        run.feed.accumulate = options.accumulate
        run.feed.interrupt()


def _read_base_rates(run: EngineRun) -> list[float]:
    """The rate of each group before any schedule."""
    assert run.optimizer is not None
    groups, values = run.optimizer.param_groups, run.rate.values
    if len(groups) != len(values):
        values = [read_rate(group["lr"]) for group in groups]
    pairs = zip(groups, values, strict=True)
    return [float(group.get("initial_lr", value)) for group, value in pairs]


@contextmanager
def marking_all_trainable(run: EngineRun) -> Iterator[None]:
    """Let every parameter in the optimizer require a gradient in a block.

    An optimizer that is built there has the frozen ones too, with their state.
    """
    assert run.optimizer is not None
    held = [one for group in run.optimizer.param_groups for one in group["params"]]
    flags = [(one, one.requires_grad) for one in (*held, *run.model.parameters())]
    for parameter in held:
        parameter.requires_grad_(True)
    try:
        yield
    finally:
        for parameter, is_trained in flags:
            parameter.requires_grad_(is_trained)


def _change_given_optimizer(run: EngineRun, change: OptimChange) -> None:
    """Change options of an optimizer that was given as an object, in place.

    All changes so far count for the options of updates. Those of the groups come back from a
    checkpoint, so that only those of the last change are set.
    """
    assert run.optimizer is not None
    check_optim_change(run.optimizer, change)
    own = {k: v for one in run.stage_progress.changes for k, v in one.items() if k in _UPDATE_KEYS}
    set_options(run, replace(run.options.optim, **own))
    bases = iter(_read_base_rates(run))
    for _, optimizer, part in split_change(run.optimizer, change):
        values = {name: part[name] for name in part if name not in (*_UPDATE_KEYS, "state")}
        for group in optimizer.param_groups:
            base = next(bases)
            group.update({name: value for name, value in values.items() if name != "lr"})
            if "lr" in values:  # rates of groups keep their ratios
                lr, usual = float(values["lr"]), read_rate(optimizer.defaults["lr"])
                _set_base_rate(group, lr if base == usual else lr * (base / usual))
            for parameter in group["params"] if part.get("state") == "reset" else ():
                optimizer.state.pop(parameter, None)
        optimizer.defaults.update(values)


def check_optim_change(optimizer: Optimizer, change: OptimChange) -> None:
    """Refuse a change that an optimizer given as an object cannot make."""
    for key, one, own in split_change(optimizer, change):
        for name in (name for name in own if name not in (*_UPDATE_KEYS, "state")):
            is_config_only = name in _CONFIG_ONLY_KEYS
            if is_config_only or name not in one.defaults:
                what = f"{type(one).__name__} was given as an object and has no {name!r} to change"
                hint = "" if is_config_only else suggest(name, one.defaults)
                hint = hint or "describe the optimizer in the section optim"
                raise ConfigError(Problem(f"{key}.{name}", what, hint=hint))
    if isinstance(optimizer, Optimizers):
        names = [one.name for one in optimizer]
        known = [*names, *_UPDATE_KEYS]
        for name in (name for name in change if name not in known):
            hint = suggest(name, known) or f"there are {', '.join(names)}"
            what = f"there is no optimizer {name!r}"
            raise ConfigError(Problem(f"optim.{name}", what, hint=hint))


def _copy_options(run: EngineRun, made: Optimizer) -> None:
    """Give the groups of the run's optimizer the options of another one of its class."""
    assert run.optimizer is not None
    rates = [read_rate(group["lr"]) for group in made.param_groups]
    has_other_rates = rates != _read_base_rates(run)
    left_out = (*IMPLEMENTATION_OPTIONS, "lr")
    for group, other, rate in zip(
        run.optimizer.param_groups, made.param_groups, rates, strict=True
    ):
        group.update({name: value for name, value in other.items() if name not in left_out})
        if has_other_rates:
            _set_base_rate(group, rate)
    for own, new in zip(list_optimizers(run.optimizer), list_optimizers(made), strict=True):
        own.defaults.update(new.defaults)
    if isinstance(run.optimizer, Optimizers) and isinstance(made, Optimizers):
        run.optimizer.copy_options_from(made)


def _set_base_rate(group: dict[str, Any], value: float) -> None:
    group.pop("initial_lr", None)
    if isinstance(group["lr"], Tensor):
        with torch.no_grad():
            group["lr"].fill_(value)
    else:
        group["lr"] = value


def reset_to_base_rates(optimizer: Optimizer) -> None:
    """Give every group the rate that it had before any schedule."""
    for group in optimizer.param_groups:
        if "initial_lr" in group:
            _set_base_rate(group, read_rate(group["initial_lr"]))


def _read_group_layout(optimizer: Optimizer) -> list[list[int]]:
    return [[id(one) for one in group["params"]] for group in optimizer.param_groups]


def _copy_state(before: Optimizer, after: Optimizer) -> None:
    states: dict[Any, Any] = before.state  # torch says tensors, but takes other keys, too
    held = {id(one) for group in after.param_groups for one in group["params"]}
    for key, state in states.items():
        if id(key) in held or not isinstance(key, Tensor):
            after.state[key] = state


def find_torch_schedule(schedule: AnySchedule | None) -> TorchSchedule | None:
    """The scheduler of torch in a schedule, if there is one."""
    if isinstance(schedule, OptimizerSchedules):
        members = (find_torch_schedule(one) for _, one in schedule.members.values())
        return next((one for one in members if one is not None), None)
    plain = schedule.schedule if isinstance(schedule, Warmup) else schedule
    return plain if isinstance(plain, TorchSchedule) else None


def build_schedule_error(schedule: TorchSchedule, stage: Stage) -> ConfigError:
    """The error for a scheduler of torch that would continue in a stage with other rates."""
    kind = type(schedule.scheduler).__name__
    what = f"{kind} of torch cannot continue with another optimizer or other rates"
    hint = "give the stage its own schedule, or use a schedule of Epochal for the run"
    return ConfigError(Problem(f"{stage.key}.schedule", what, hint=hint))


def choose_stage_updater(run: EngineRun) -> Updater:
    """The updater that the optimizer needs; one that the user gave stays."""
    is_usual = type(run.part(Updater)) in (Updater, ClosureUpdater)
    found = choose_updater(run.optimizer)
    return run.part(Updater) if not is_usual or type(found) is type(run.part(Updater)) else found
