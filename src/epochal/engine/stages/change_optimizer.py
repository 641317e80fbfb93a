"""The optimizer of a run with other options, another state or of another kind, between steps."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import fields, replace
from typing import TYPE_CHECKING, Any, Protocol

import torch
from torch import Tensor

from epochal.engine.interfaces.options import OptimOptions
from epochal.engine.interfaces.schedule import OptimizerSchedules, TorchSchedule, Warmup
from epochal.engine.optim.group_rates import read_rate
from epochal.engine.optim.multi_optimizer import Optimizers, list_optimizers
from epochal.engine.step.updater import ClosureUpdater, Updater, choose_updater
from epochal.errors import ConfigError, Problem, TaskError, suggest

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from torch import nn
    from torch.optim import Optimizer

    from epochal.engine.interfaces.schedule import AnySchedule
    from epochal.engine.run import Run
    from epochal.engine.stages.stage import OptimChange, Stage

    Group = dict[str, Any]  # torch's own: options by name

STATE_CHOICES = ("keep", "reset")
_CONFIG_ONLY_KEYS = ("type", "groups", "layer_decay", "no_decay", "freeze")
"""Keys that only an optimizer from a config knows what to do with."""

RATE_KEYS = ("type", "lr", "groups", "layer_decay", "no_decay")
"""Keys that give other groups, or groups other rates."""

_UPDATE_KEYS = frozenset(one.name for one in fields(OptimOptions)) - {*_CONFIG_ONLY_KEYS}
"""Keys that say how updates are made, whatever the optimizer is."""

_IMPLEMENTATION_OPTIONS = ("params", "fused", "foreach", "capturable", "differentiable")


class MakeOptimizer(Protocol):
    """Makes the optimizer of a run anew."""

    def __call__(
        self, model: nn.Module, changes: Sequence[OptimChange]
    ) -> tuple[Optimizer, OptimOptions]:
        """The optimizer and the options that a section comes to after some changes, in order."""


def change_optim(run: Run, **changes: object) -> None:
    """Change keys of the section ``optim`` from here on: what ``run.change_optim`` does.

    Raises:
        TaskError: The run is not training.
        ConfigError: There is no such key, or its value cannot be used.
    """
    if not run.has_started or run.optimizer is None:
        raise TaskError(
            "change_optim: only a run that trains has an optimizer to change\n"
            "  call it from run_start on, between two steps; before that, change run.optimizer"
        )
    change = {name: _to_plain(value) for name, value in changes.items()}
    with rebinding(run):
        apply_optim_change(run, change)
    if run.resume is None:  # else it happened before, and is done again on the way there
        run.writer.event("optim_changed", step=run.step, changes=change)


@contextmanager
def rebinding(run: Run) -> Iterator[None]:
    """Change optimizer, schedule or options in a block; the step is chosen anew after it.

    The owner of the learning rate stays where it owns the same rates as before.
    """
    assert run.optimizer is not None
    before, schedule, bases = run.optimizer, run.schedule, read_base_rates(run)
    changes = list(run.course.changes)
    yield
    is_same = before is run.optimizer and schedule is run.schedule
    if not is_same or bases != read_base_rates(run):
        _require_movable_schedule(run, is_new=schedule is not run.schedule)
        _bind_updater(run)
    elif run.course.changes != changes:
        run.course.pinned_rate = run.updater.rate
        _bind_updater(run)
    run.bind()
    run.feed.static_inputs.set_targets([])  # what was captured before is gone
    run.choose_step()


def _bind_updater(run: Run) -> None:
    old, run.updater = run.updater, find_updater(run)
    run.updater.guard, run.updater.average, run.updater.noise = old.guard, old.average, old.noise
    try:
        run.updater.bind(run)
    finally:
        run.course.pinned_rate = None


def apply_optim_change(run: Run, change: OptimChange) -> None:
    """Give the run the optimizer that a change of ``optim`` leads to, and its options.

    An optimizer of the same kind stays, with its state; one whose groups are others takes over
    the state of each parameter.

    Raises:
        ConfigError: The change cannot be made.
    """
    assert run.optimizer is not None
    for name, one in split_change_by_optimizer(run.optimizer, change).items():
        state = one.get("state")
        if state is not None and state not in STATE_CHOICES:
            hint = suggest(str(state), STATE_CHOICES)
            key = f"optim.{name}.state" if name else "optim.state"
            raise ConfigError(Problem(key, f"unknown state {state!r}", hint=hint))
    run.course.changes.append(change)
    try:
        if run.make_optimizer is None:
            _set_values(run, change)
        else:
            rebuild_optimizer(run, change)
    except BaseException:
        run.course.changes.pop()  # it was not made
        raise


def split_change_by_optimizer(optimizer: Optimizer, change: OptimChange) -> dict[str, OptimChange]:
    """What a change says of each optimizer, by name; a single one has the empty name."""
    if not isinstance(optimizer, Optimizers):
        return {"": change}
    return {one.name: change.get(one.name) or {} for one in optimizer}


def rebuild_optimizer(run: Run, change: OptimChange | None = None) -> None:
    """Give the run the optimizer and the options that all changes so far lead to.

    Args:
        run: Its optimizer stays, if only options of it are others.
        change: The last one, which says what becomes of the state: kept or reset; what it does
            not mention is kept where that is possible.

    Raises:
        ConfigError: It is to be kept, and cannot be.
    """
    before = run.optimizer
    assert before is not None
    assert run.make_optimizer is not None
    with marking_all_trainable(run):
        made, options = run.make_optimizer(run.model, run.course.changes)
    wishes = split_change_by_optimizer(before, change or {})
    pairs = _pair(before, made, wishes)
    set_options(run, options)
    has_all_states = all(is_kept for _, _, is_kept in pairs)
    if has_all_states and _read_group_layout(made) == _read_group_layout(before):
        _copy_options(run, made)
        return
    for old, new, is_kept in pairs:
        if is_kept:
            _move_state(old, new)
    run.optimizer = made
    reattach_schedules(run, made)


def _pair(
    before: Optimizer, made: Optimizer, wishes: Mapping[str, OptimChange]
) -> list[tuple[Optimizer, Optimizer, bool]]:
    """Each optimizer with the one in its place, and whether its state stays."""
    pairs = []
    names = zip(wishes, list_optimizers(before), list_optimizers(made), strict=True)
    for name, old, new in names:
        state, is_same = wishes[name].get("state"), type(new) is type(old)
        if not is_same and state == "keep":
            kinds = f"{type(old).__name__} to {type(new).__name__}"
            hint = "write state: reset, or leave it out"
            key = f"optim.{name}.state" if name else "optim.state"
            raise ConfigError(Problem(key, f"the state cannot be kept from {kinds}", hint=hint))
        pairs.append((old, new, is_same and state != "reset"))
    return pairs


def reattach_schedules(run: Run, made: Optimizer) -> None:
    """Let the schedules of several optimizers move the rates of those that took their place."""
    schedule = run.course.schedule
    if not isinstance(schedule, OptimizerSchedules) or not isinstance(made, Optimizers):
        return
    members = {name: (made[name], own) for name, (_, own) in schedule.members.items()}
    is_own = run.schedule is schedule
    run.course.schedule = OptimizerSchedules(members)
    if is_own:
        run.schedule = run.course.schedule


def set_options(run: Run, options: OptimOptions) -> None:
    """Give the run other options of ``optim``."""
    run.options = replace(run.options, optim=options)
    if run.feed.accumulate != options.accumulate:
        run.feed.accumulate = options.accumulate
        run.feed.interrupt()


def set_update_options(run: Run, changes: Iterable[OptimChange]) -> None:
    """The same for an optimizer that came as an object: what is not its own business."""
    own = {k: v for change in changes for k, v in change.items() if k in _UPDATE_KEYS}
    set_options(run, replace(run.options.optim, **own))


def read_base_rates(run: Run) -> list[float]:
    """The rate of each group before any schedule."""
    assert run.optimizer is not None
    groups, values = run.optimizer.param_groups, run.updater.rate.values
    if len(groups) != len(values):
        values = [read_rate(group["lr"]) for group in groups]
    pairs = zip(groups, values, strict=True)
    return [float(group.get("initial_lr", value)) for group, value in pairs]


@contextmanager
def marking_all_trainable(run: Run) -> Iterator[None]:
    """Let everything that the optimizer holds look trained in a block, frozen or not."""
    assert run.optimizer is not None
    groups = run.optimizer.param_groups
    held = [one for group in groups for one in group["params"]]
    flags = [(one, one.requires_grad) for one in (*held, *run.model.parameters())]
    for parameter in held:
        parameter.requires_grad_(True)
    try:
        yield
    finally:
        for parameter, is_trained in flags:
            parameter.requires_grad_(is_trained)


def _set_values(run: Run, change: OptimChange) -> None:
    """Change an optimizer that came as an object: the options of its groups, in place."""
    assert run.optimizer is not None
    check_optim_change(run.optimizer, change)
    set_update_options(run, [change])
    wishes = split_change_by_optimizer(run.optimizer, change)
    bases = iter(read_base_rates(run))
    for one, wish in zip(list_optimizers(run.optimizer), wishes.values(), strict=True):
        own_bases = [next(bases) for _ in one.param_groups]
        for name, value in _values_of(one, wish).items():
            if name == "lr":
                _scale_rates(one, own_bases, float(value))
            else:
                for group in one.param_groups:
                    group[name] = value
            one.defaults[name] = value
        if wish.get("state") == "reset":
            for parameter in [p for group in one.param_groups for p in group["params"]]:
                one.state.pop(parameter, None)


def check_optim_change(optimizer: Optimizer, change: OptimChange) -> None:
    """Refuse a change of what an optimizer that came as an object does not have."""
    wishes = split_change_by_optimizer(optimizer, change)
    for name, one in zip(wishes, list_optimizers(optimizer), strict=True):
        _values_of(one, wishes[name], key=f"optim.{name}" if name else "optim")
    if isinstance(optimizer, Optimizers):
        known = [*wishes, *_UPDATE_KEYS]
        for name in change:
            if name not in known:
                hint = suggest(name, known) or f"there are {', '.join(wishes)}"
                what = f"there is no optimizer {name!r}"
                raise ConfigError(Problem(f"optim.{name}", what, hint=hint))


def _values_of(optimizer: Optimizer, change: OptimChange, key: str = "optim") -> dict[str, Any]:
    """Those of a change that are options of the groups of an optimizer that came as an object."""
    values = {k: v for k, v in change.items() if k not in _UPDATE_KEYS and k != "state"}
    for name in values:
        if name in _CONFIG_ONLY_KEYS or name not in optimizer.defaults:
            what = f"{type(optimizer).__name__} came as an object and has no {name!r} to change"
            hint = suggest(name, optimizer.defaults) if name not in _CONFIG_ONLY_KEYS else ""
            hint = hint or "describe the optimizer in the section optim"
            raise ConfigError(Problem(f"{key}.{name}", what, hint=hint))
    return values


def _scale_rates(optimizer: Optimizer, bases: Sequence[float], lr: float) -> None:
    """Give every group another rate, in the same ratio to those of the others."""
    usual = read_rate(optimizer.defaults["lr"])
    for group, base in zip(optimizer.param_groups, bases, strict=True):
        _set_rate(group, lr if base == usual else lr * (base / usual))


def _copy_options(run: Run, made: Optimizer) -> None:
    """Give the groups of the run's optimizer the options of another one of its kind."""
    assert run.optimizer is not None
    bases = [read_rate(group["lr"]) for group in made.param_groups]
    has_other_rates = bases != read_base_rates(run)
    for group, other in zip(run.optimizer.param_groups, made.param_groups, strict=True):
        group.update({k: v for k, v in other.items() if k not in (*_IMPLEMENTATION_OPTIONS, "lr")})
        if has_other_rates:
            _set_rate(group, read_rate(other["lr"]))
    for own, new in zip(list_optimizers(run.optimizer), list_optimizers(made), strict=True):
        own.defaults.update(new.defaults)
    if isinstance(run.optimizer, Optimizers) and isinstance(made, Optimizers):
        run.optimizer.copy_options_from(made)


def _set_rate(group: Group, value: float) -> None:
    """Give a group its base rate, before any schedule."""
    group.pop("initial_lr", None)
    if isinstance(group["lr"], Tensor):
        with torch.no_grad():
            group["lr"].fill_(value)
    else:
        group["lr"] = value


def reset_to_base_rates(optimizer: Optimizer) -> None:
    """Let every group have its base rate again."""
    for group in optimizer.param_groups:
        if "initial_lr" in group:
            _set_rate(group, read_rate(group["initial_lr"]))


def _read_group_layout(optimizer: Optimizer) -> list[list[int]]:
    return [[id(one) for one in group["params"]] for group in optimizer.param_groups]


def _move_state(before: Optimizer, after: Optimizer) -> None:
    kept: Mapping[Any, Any] = before.state
    held = {id(one) for group in after.param_groups for one in group["params"]}
    for key, state in kept.items():
        if id(key) in held or not isinstance(key, Tensor):
            after.state[key] = state


def _require_movable_schedule(run: Run, *, is_new: bool) -> None:
    """Refuse to let a scheduler of torch go on with other rates than it began with."""
    schedule = find_torch_schedule(run.schedule)
    if schedule is not None and not (is_new and _has_stage_schedule(run)):
        raise build_schedule_error(schedule, run.course.stage)


def find_torch_schedule(schedule: AnySchedule | None) -> TorchSchedule | None:
    """A scheduler of torch in a schedule, if there is one."""
    if isinstance(schedule, OptimizerSchedules):
        members = (find_torch_schedule(one) for _, one in schedule.members.values())
        return next((one for one in members if one is not None), None)
    plain = schedule.schedule if isinstance(schedule, Warmup) else schedule
    return plain if isinstance(plain, TorchSchedule) else None


def build_schedule_error(schedule: TorchSchedule, stage: Stage) -> ConfigError:
    """What is wrong with a scheduler of torch that is to go on in a stage."""
    kind = type(schedule.scheduler).__name__
    what = f"{kind} of torch cannot go on with another optimizer or other rates"
    hint = "give the stage a schedule of its own, or use one that is not torch's for the run"
    return ConfigError(Problem(f"{stage.key}.schedule", what, hint=hint))


def _has_stage_schedule(run: Run) -> bool:
    return run.course.stage.schedule is not None


def find_updater(run: Run) -> Updater:
    """The updater that the optimizer needs; one of the user's own stays."""
    is_usual = type(run.updater) in (Updater, ClosureUpdater)
    found = choose_updater(run.optimizer)
    return run.updater if not is_usual or type(found) is type(run.updater) else found


def _to_plain(value: object) -> object:
    """A class by its dotted path, a tensor by its number; all else as it is."""
    if isinstance(value, Tensor):
        return read_rate(value)
    return f"{value.__module__}.{value.__qualname__}" if isinstance(value, type) else value
