"""The optimizer of a run with other options, another state or of another kind, between steps."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import fields, replace
from typing import TYPE_CHECKING, Any, Protocol

import torch
from torch import Tensor

from epochal.engine.optimizers import Optimizers
from epochal.engine.options import OptimOptions
from epochal.engine.rates import read_rate
from epochal.engine.schedule import Schedules, TorchSchedule, Warmup
from epochal.engine.update import ClosureUpdater, Updater, choose_updater
from epochal.errors import ConfigError, Problem, TaskError, suggest

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from torch import nn
    from torch.optim import Optimizer

    from epochal.engine.run import Run
    from epochal.engine.schedule import AnySchedule
    from epochal.engine.stages import Change, Stage

    Group = dict[str, Any]  # torch's own: options by name

STATES = ("keep", "reset")
_BUILT = ("type", "groups", "layer_decay", "no_decay", "freeze")
"""Keys that only an optimizer from a config knows what to do with."""

RATES = ("type", "lr", "groups", "layer_decay", "no_decay")
"""Keys that give other groups, or groups other rates."""

_FORMS = ("params", "fused", "foreach", "capturable", "differentiable")


class MakeOptimizer(Protocol):
    """Makes the optimizer of a run anew."""

    def __call__(
        self, model: nn.Module, changes: Sequence[Change]
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
    if isinstance(run.optimizer, Optimizers):
        raise TaskError(
            "change_optim: the run has several optimizers\n"
            "  change the one that is meant in run.optimizer"
        )
    change = {name: _to_plain(value) for name, value in changes.items()}
    with rebinding(run):
        change_optimizer(run, change)
    if run.resume is None:  # else it happened before, and is done again on the way there
        run.writer.event("optim_changed", step=run.step, changes=change)


@contextmanager
def rebinding(run: Run) -> Iterator[None]:
    """Change optimizer, schedule or options in a block; the step is chosen anew after it.

    The owner of the learning rate stays where it owns the same rates as before.
    """
    assert run.optimizer is not None
    before, schedule, bases = run.optimizer, run.schedule, read_bases(run)
    changes = list(run.course.changes)
    yield
    is_same = before is run.optimizer and schedule is run.schedule
    if not is_same or bases != read_bases(run):
        _require_movable(run, is_new=schedule is not run.schedule)
        _bind_updater(run)
    elif run.course.changes != changes:
        run.course.kept_rate = run.updater.rate
        _bind_updater(run)
    run.bind()
    run.feed.aim.at([])  # what was captured before is gone
    run.choose_step()


def _bind_updater(run: Run) -> None:
    old, run.updater = run.updater, find_updater(run)
    run.updater.guard, run.updater.average, run.updater.noise = old.guard, old.average, old.noise
    try:
        run.updater.bind(run)
    finally:
        run.course.kept_rate = None


def change_optimizer(run: Run, change: Change) -> None:
    """Give the run the optimizer that a change of ``optim`` leads to, and its options.

    An optimizer of the same kind stays, with its state; one whose groups are others takes over
    the state of each parameter.

    Raises:
        ConfigError: The change cannot be made.
    """
    assert run.optimizer is not None
    state = change.get("state")
    if state is not None and state not in STATES:
        hint = suggest(str(state), STATES)
        raise ConfigError(Problem("optim.state", f"unknown state {state!r}", hint=hint))
    run.course.changes.append(change)
    try:
        if run.make_optimizer is None:
            _set_values(run, change)
        else:
            make(run, state)
    except BaseException:
        run.course.changes.pop()  # it was not made
        raise


def make(run: Run, state: str | None = None) -> None:
    """Give the run the optimizer and the options that all changes so far lead to.

    Args:
        run: Its optimizer stays, if only options of it are others.
        state: What becomes of the state: kept or reset; None keeps it where that is possible.

    Raises:
        ConfigError: It is to be kept, and cannot be.
    """
    before = run.optimizer
    assert before is not None
    assert run.make_optimizer is not None
    with all_trained(run):
        made, options = run.make_optimizer(run.model, run.course.changes)
    is_same = type(made) is type(before)
    if not is_same and state == "keep":
        kinds = f"{type(before).__name__} to {type(made).__name__}"
        hint = "write state: reset, or leave it out"
        what = f"the state cannot be kept from {kinds}"
        raise ConfigError(Problem("optim.state", what, hint=hint))
    set_options(run, options)
    if is_same and state != "reset":
        if _layout(made) == _layout(before):
            _copy_options(run, made)
            return
        _move_state(before, made)
    run.optimizer = made


def set_options(run: Run, options: OptimOptions) -> None:
    """Give the run other options of ``optim``."""
    run.options = replace(run.options, optim=options)
    if run.feed.accumulate != options.accumulate:
        run.feed.accumulate = options.accumulate
        run.feed.interrupt()


def set_own_options(run: Run, changes: Iterable[Change]) -> None:
    """The same for an optimizer that came as an object: what is not its own business."""
    names = {one.name for one in fields(OptimOptions)} - {*_BUILT}
    own = {k: v for change in changes for k, v in change.items() if k in names}
    set_options(run, replace(run.options.optim, **own))


def read_bases(run: Run) -> list[float]:
    """The rate of each group before any schedule."""
    assert run.optimizer is not None
    groups, values = run.optimizer.param_groups, run.updater.rate.values
    if len(groups) != len(values):
        values = [read_rate(group["lr"]) for group in groups]
    pairs = zip(groups, values, strict=True)
    return [float(group.get("initial_lr", value)) for group, value in pairs]


@contextmanager
def all_trained(run: Run) -> Iterator[None]:
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


def _set_values(run: Run, change: Change) -> None:
    """Change an optimizer that came as an object: the options of its groups, in place."""
    assert run.optimizer is not None
    optimizer = run.optimizer
    values = check_values(optimizer, change)
    set_own_options(run, [change])
    for name, value in values.items():
        if name == "lr":
            _scale_rates(run, float(value))
        else:
            for group in optimizer.param_groups:
                group[name] = value
        optimizer.defaults[name] = value
    if change.get("state") == "reset":
        optimizer.state.clear()


def check_values(optimizer: Optimizer, change: Change) -> dict[str, Any]:
    """Those of a change that are options of the groups of an optimizer that came as an object."""
    own = {one.name for one in fields(OptimOptions)} - {*_BUILT}
    values = {k: v for k, v in change.items() if k not in own and k != "state"}
    for name in values:
        if name in _BUILT or name not in optimizer.defaults:
            what = f"{type(optimizer).__name__} came as an object and has no {name!r} to change"
            hint = suggest(name, optimizer.defaults) if name not in _BUILT else ""
            hint = hint or "describe the optimizer in the section optim"
            raise ConfigError(Problem(f"optim.{name}", what, hint=hint))
    return values


def _scale_rates(run: Run, lr: float) -> None:
    """Give every group another rate, in the same ratio to those of the others."""
    assert run.optimizer is not None
    usual = read_rate(run.optimizer.defaults["lr"])
    for group, base in zip(run.optimizer.param_groups, read_bases(run), strict=True):
        _set_rate(group, lr if base == usual else lr * (base / usual))


def _copy_options(run: Run, made: Optimizer) -> None:
    """Give the groups of the run's optimizer the options of another one of its kind."""
    assert run.optimizer is not None
    bases = [read_rate(group["lr"]) for group in made.param_groups]
    has_other_rates = bases != read_bases(run)
    for group, other in zip(run.optimizer.param_groups, made.param_groups, strict=True):
        group.update({k: v for k, v in other.items() if k not in (*_FORMS, "lr")})
        if has_other_rates:
            _set_rate(group, read_rate(other["lr"]))
    run.optimizer.defaults.update(made.defaults)


def _set_rate(group: Group, value: float) -> None:
    """Give a group its base rate, before any schedule."""
    group.pop("initial_lr", None)
    if isinstance(group["lr"], Tensor):
        with torch.no_grad():
            group["lr"].fill_(value)
    else:
        group["lr"] = value


def forget_schedule(optimizer: Optimizer) -> None:
    """Let every group have its base rate again."""
    for group in optimizer.param_groups:
        if "initial_lr" in group:
            _set_rate(group, read_rate(group["initial_lr"]))


def _layout(optimizer: Optimizer) -> list[list[int]]:
    return [[id(one) for one in group["params"]] for group in optimizer.param_groups]


def _move_state(before: Optimizer, after: Optimizer) -> None:
    kept: Mapping[Any, Any] = before.state
    held = {id(one) for group in after.param_groups for one in group["params"]}
    for key, state in kept.items():
        if id(key) in held or not isinstance(key, Tensor):
            after.state[key] = state


def _require_movable(run: Run, *, is_new: bool) -> None:
    """Refuse to let a scheduler of torch go on with other rates than it began with."""
    schedule = find_torch_schedule(run.schedule)
    if schedule is not None and not (is_new and _is_own(run)):
        raise immovable(schedule, run.course.stage)


def find_torch_schedule(schedule: AnySchedule | None) -> TorchSchedule | None:
    """A scheduler of torch in a schedule, if there is one."""
    if isinstance(schedule, Schedules):
        members = (find_torch_schedule(one) for _, one in schedule.members.values())
        return next((one for one in members if one is not None), None)
    plain = schedule.schedule if isinstance(schedule, Warmup) else schedule
    return plain if isinstance(plain, TorchSchedule) else None


def immovable(schedule: TorchSchedule, stage: Stage) -> ConfigError:
    """What is wrong with a scheduler of torch that is to go on in a stage."""
    kind = type(schedule.scheduler).__name__
    what = f"{kind} of torch cannot go on with another optimizer or other rates"
    hint = "give the stage a schedule of its own, or use one that is not torch's for the run"
    return ConfigError(Problem(f"{stage.key}.schedule", what, hint=hint))


def _is_own(run: Run) -> bool:
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
