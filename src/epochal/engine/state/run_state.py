"""Collects the whole state of a run as trees by part, and restores it bit for bit."""

from __future__ import annotations

import logging
from collections import OrderedDict
from dataclasses import dataclass
from operator import attrgetter
from typing import TYPE_CHECKING, Any, final

import torch
from torch import Tensor, nn

from epochal.checkpoint import serialize_tree
from epochal.checkpoint.sharded import fit_to, read_whole
from epochal.engine.device.seeding import generator_states, restore_generators
from epochal.engine.loss.metric_adapter import MetricAdapter
from epochal.engine.run.plan import list_due_times, restore_due_times
from epochal.engine.run.speed import read_spent
from epochal.engine.state.changed_attributes import ChangedAttributes
from epochal.engine.state.optimizer_state import (
    collect_optimizer,
    name_all_parameters,
    restore_in_place,
    restore_optimizer,
)
from epochal.engine.step.updater import Updater
from epochal.errors import CheckpointError

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping

    from epochal.engine.interfaces.metric import Metric
    from epochal.engine.run.engine_run import EngineRun

    State = dict[str, Any]  # a tree of plain data and tensors

logger = logging.getLogger(__name__)


@final
@dataclass(frozen=True, slots=True)
class SavedPart:
    """One part of the state of a run."""

    name: str
    collect: Callable[[Any], Any]  # of a run whose owner is not None
    """Returns its tree; the tensors in it are the live ones."""

    restore: Callable[[Any, Any], object] | None = None
    """Puts a tree back, in place; None for what a resume reads elsewhere."""

    owner: str = ""
    """The attribute of the run that has this state; a run without it has no such part."""

    is_in_all: bool = True
    """Whether checkpoints of earlier versions have it, too."""

    takes_shards: bool = False
    """Whether ``restore`` takes tensors that were saved in parts; else they are put together."""

    def is_in(self, run: EngineRun) -> bool:
        """Whether a run has this part."""
        return not self.owner or getattr(run, self.owner) is not None


def collect_state(run: EngineRun) -> State:
    """A tree for every part; its tensors are the live ones, so it is valid until the next step.

    The run is between two steps, and all pending metrics have arrived.
    """
    return {part.name: part.collect(run) for part in SAVED_PARTS if part.is_in(run)}


def restore_state(run: EngineRun, state: Mapping[str, Any], *, is_strict: bool = True) -> None:
    """Put every part of a prepared run into a state of ``collect_state``, in place.

    If ``is_strict``, a checkpoint with missing or additional parts is refused.
    """
    _compare_parts(run, state, is_strict=is_strict)
    for part in SAVED_PARTS:
        if part.restore is not None and part.is_in(run) and part.name in state:
            saved = state[part.name]
            part.restore(run, saved if part.takes_shards else read_whole(saved))


def _compare_parts(run: EngineRun, state: Mapping[str, Any], *, is_strict: bool) -> None:
    required = (one for one in SAVED_PARTS if one.restore and one.is_in_all and not one.owner)
    lacking = sorted(one.name for one in required if one.name not in state)
    if lacking:
        raise CheckpointError(
            f"checkpoint: has no {', '.join(lacking)}: it is not the checkpoint of a run"
        )
    here = [one.name for one in SAVED_PARTS if one.owner and one.is_in(run)]
    there = [one.name for one in SAVED_PARTS if one.owner and one.name in state]
    here += [f"metrics.{name}" for name in run.train_metrics]
    there += [f"metrics.{name}" for name in state["metrics"]]
    _compare_names("parts", here, there, is_strict=is_strict)
    hooks, saved = _stateful_hooks(run), state["hooks"]
    if not run.is_main:  # it has no hooks that write or print
        saved = {name: saved[name] for name in saved if name in hooks}
    _compare_names("hooks", hooks, saved, is_strict=is_strict)


def _compare_names(
    what: str, here: Collection[str], there: Collection[str], *, is_strict: bool
) -> None:
    missing = [name for name in here if name not in there]
    unexpected = [name for name in there if name not in here]
    lines = [("missing in the checkpoint", missing), ("only in the checkpoint", unexpected)]
    listed = [f"{text}: {', '.join(names)}" for text, names in lines if names]
    if not listed:
        return
    if is_strict:
        message = f"checkpoint: its {what} do not match those of the run"
        raise CheckpointError("\n  ".join([message, *listed]))
    logger.warning("the checkpoint's %s do not match those of the run: %s", what, "; ".join(listed))


def _restore_tensors(owner: str, here: Mapping[str, Tensor], saved: Mapping[str, Tensor]) -> None:
    names = [[f"{owner}.{name}" for name in tensors] for tensors in (here, saved)]
    _compare_names("parts", *names, is_strict=True)
    with torch.no_grad():
        for name, tensor in here.items():
            if tensor.shape != saved[name].shape:
                shapes = f"{tuple(saved[name].shape)} there, {tuple(tensor.shape)} here"
                raise CheckpointError(f"{owner}.{name}: its shape differs: {shapes}")
            tensor.copy_(fit_to(saved[name], tensor))


def _restore_loss(run: Any, state: State) -> None:  # noqa: ANN401 - a run that has a loss
    loss = run.loss
    restore_module(loss, state["module"], run.device, "loss")
    # A term that only one of the two has was added or removed in the config.
    loss.weights.update(
        {name: state["weights"].get(name, own) for name, own in loss.weights.items()}
    )


def _collect_updater(run: EngineRun) -> State:
    updater: Any = run.part(Updater)  # one of the user's own may have a state_dict
    own = updater.state_dict() if hasattr(updater, "state_dict") else None
    return {"tensors": updater.state_tensors(), "own": own}


def _restore_updater(run: EngineRun, state: State) -> None:
    updater: Any = run.part(Updater)
    _restore_tensors("updater", updater.state_tensors(), state["tensors"])
    if state["own"] is not None and hasattr(updater, "load_state_dict"):
        updater.load_state_dict(state["own"])


def _stateful(metric: Metric) -> object:
    return metric.state_part if isinstance(metric, MetricAdapter) else metric


def _collect_object(part: Any) -> State:  # noqa: ANN401 - a metric of the user
    """The ``state_dict`` of an object, or its attributes that can be saved."""
    if hasattr(part, "state_dict"):
        return {"own": part.state_dict()}
    attributes, on_host = {}, []
    for name, value in vars(part).items():
        try:
            serialize_tree(value, name)
        except CheckpointError:
            continue
        attributes[name] = value
        if isinstance(value, Tensor) and value.device.type == "cpu":
            on_host.append(name)
    return {"attributes": attributes, "on_host": on_host}


def collect_metric(metric: Metric) -> State:
    """The state of a metric object."""
    return _collect_object(_stateful(metric))


def restore_metric(metric: Metric, state: State, device: torch.device) -> None:
    """Put a metric object into a state of ``collect_metric``."""
    _restore_object(_stateful(metric), state, device)


def _restore_object(part: Any, state: State, device: torch.device) -> None:  # noqa: ANN401 - same
    if "own" in state:
        part.load_state_dict(state["own"])
        return
    for name, value in state["attributes"].items():
        place = torch.device("cpu") if name in state["on_host"] else device
        setattr(part, name, restore_in_place(getattr(part, name, None), value, place))


def _collect_task(run: EngineRun) -> State:
    task = run.task
    if hasattr(task, "state_dict"):
        return {"own": task.state_dict()}
    own = getattr(task, "__dict__", {})
    modules = {name: part for name, part in own.items() if isinstance(part, nn.Module)}
    return {"modules": {name: collect_module(part) for name, part in modules.items()}}


def _restore_task(run: EngineRun, state: State) -> None:
    if "own" in state:
        run.task.load_state_dict(state["own"])
        return
    for name, saved in state["modules"].items():
        part = getattr(run.task, name, None)
        if not isinstance(part, nn.Module):
            raise CheckpointError(
                f"task.{name}: is a module in the checkpoint, but not in this task"
            )
        restore_module(part, saved, run.device, f"task.{name}")


def _stateful_hooks(run: EngineRun) -> dict[str, Any]:
    """Hooks that have a ``state_dict``, by class and order."""
    found: dict[str, Any] = {}
    for hook in run.events.hooks:
        if hasattr(hook, "state_dict") and hasattr(hook, "load_state_dict"):
            kind = type(hook).__name__
            number = sum(name.split("#")[0] == kind for name in found)
            found[f"{kind}#{number}"] = hook
    return found


def find_stateless_hooks(run: EngineRun) -> list[str]:
    """Classes of the user's hooks that hold tensors and have no ``state_dict``."""
    return [
        type(hook).__name__
        for hook in run.events.hooks
        if not hasattr(hook, "state_dict")
        and type(hook).__module__.split(".")[0] != "epochal"
        and any(isinstance(value, Tensor) for value in getattr(hook, "__dict__", {}).values())
    ]


def _restore_hooks(run: EngineRun, state: State) -> None:
    for name, hook in _stateful_hooks(run).items():
        if name in state:
            hook.load_state_dict(state[name])


def _restore_metrics(run: EngineRun, state: State) -> None:
    for name, metric in run.train_metrics.items():
        if name in state:
            restore_metric(metric, state[name], run.device)


def _collect_position(run: EngineRun) -> State:
    return {
        "step": run.step,
        "epoch": run.epoch,
        "is_in_epoch": run.is_in_epoch,
        "position": run.feed.next_position if run.is_in_epoch else 0,
        "samples": run.feed.samples,
        "loader": run.feed.loader_state(),
    }


def _restore_position(run: EngineRun, state: State) -> None:
    run.step, run.epoch, run.is_in_epoch = state["step"], state["epoch"], state["is_in_epoch"]
    position, samples = state["position"], state["samples"]
    run.feed.start_at(state["epoch"], position, samples, loader=state.get("loader"))


def _restore_plan(run: EngineRun, state: list[tuple[Any, ...]]) -> None:
    restore_due_times(run.plan.dues, state, run)
    run.plan.find_next_due(run)


def _object_part(name: str, path: str, owner: str = "") -> SavedPart:
    """A part that is one object of the run with a ``state_dict``."""
    find = attrgetter(path)
    return SavedPart(
        name,
        lambda run: find(run).state_dict(),
        lambda run, state: find(run).load_state_dict(state),
        owner=owner,
    )


def _mapping_part(name: str) -> SavedPart:
    """A part that is a mapping of plain values, an attribute of the run."""
    find = attrgetter(name)
    return SavedPart(name, lambda run: dict(find(run)), lambda run, state: find(run).update(state))


# In the order in which they are restored. Due times need the position and the clock; the random
# generators come last, since restoring another part may draw from them.
SAVED_PARTS: tuple[SavedPart, ...] = (
    SavedPart(
        "model",
        lambda run: collect_module(run.model),
        lambda run, state: restore_module(run.model, state, run.device, "model"),
        takes_shards=True,
    ),
    SavedPart(
        "optim",
        lambda run: collect_optimizer(run.optimizer, name_all_parameters(run)),
        lambda run, state: restore_optimizer(run.optimizer, name_all_parameters(run), state),
        owner="optimizer",
        takes_shards=True,
    ),
    _object_part("rate", "rate", owner="optimizer"),
    SavedPart(
        "average",
        lambda run: run.average.state_tensors(),
        lambda run, state: _restore_tensors("average", run.average.state_tensors(), state),
        owner="average",
        takes_shards=True,
    ),
    SavedPart(
        "loss",
        lambda run: {"weights": dict(run.loss.weights), "module": collect_module(run.loss)},
        _restore_loss,
        owner="loss",
    ),
    _object_part("monitor", "monitor", owner="monitor"),
    SavedPart("updater", _collect_updater, _restore_updater),
    SavedPart(
        "metrics",
        lambda run: {name: collect_metric(one) for name, one in run.train_metrics.items()},
        _restore_metrics,
    ),
    _object_part("meter", "meter"),
    SavedPart("task", _collect_task, _restore_task),
    SavedPart(
        "attributes",
        lambda run: run.part(ChangedAttributes).collect(),
        lambda run, state: run.part(ChangedAttributes).restore(state),
    ),
    SavedPart(
        "hooks",
        lambda run: {name: hook.state_dict() for name, hook in _stateful_hooks(run).items()},
        _restore_hooks,
    ),
    _mapping_part("latest"),
    _mapping_part("evaluated_at"),
    _mapping_part("caches"),
    SavedPart(
        "rollbacks",
        lambda run: run.rollbacks,
        lambda run, state: setattr(run, "rollbacks", tuple(state)),
        is_in_all=False,
    ),
    SavedPart(
        "choices",
        lambda run: dict(run.choices),
        lambda run, state: setattr(run, "choices", {**state, **run.choices}),
    ),
    SavedPart("data", _collect_position, _restore_position),
    SavedPart(
        "clock",
        lambda run: {**run.clock.state_dict(), "spent": read_spent(run).to_fields()},
        lambda run, state: run.clock.load_state_dict(state),
    ),
    SavedPart("plan", lambda run: list_due_times(run.plan.dues), _restore_plan),
    SavedPart("ranks", lambda run: list(run.rank_states)),
    SavedPart("stage", lambda run: run.stage_progress.state_dict()),
    SavedPart("log", lambda run: {"points": run.writer.num_points}),
    SavedPart("stop", lambda run: {"reason": run.stop_reason, "status": run.stop_status}),
    SavedPart(
        "random", lambda run: generator_states(), lambda run, state: restore_generators(state)
    ),
)


def collect_module(module: nn.Module) -> State:
    """The whole state of a module."""
    weights = dict(module.state_dict())
    buffers = {name: one for name, one in module.named_buffers() if name not in weights}
    parameters = module.named_parameters()
    return {
        "weights": weights,
        "buffers": buffers,
        "frozen": [name for name, one in parameters if not one.requires_grad],
        "eval": [name for name, one in module.named_modules() if not one.training],
    }


def restore_module(module: nn.Module, state: State, device: torch.device, owner: str) -> None:
    """Restore the state of a module, in its tensors; refuses other names or shapes."""
    _restore_weights(module, state["weights"], owner)
    for name, value in state["buffers"].items():
        prefix, _, attribute = name.rpartition(".")
        try:
            holder = module.get_submodule(prefix)
        except AttributeError as error:
            what = f"{owner}: has no buffer {name!r}, but the checkpoint has one"
            raise CheckpointError(what) from error
        setattr(
            holder, attribute, restore_in_place(getattr(holder, attribute, None), value, device)
        )
    frozen, evaluating = set(state["frozen"]), set(state["eval"])
    for name, parameter in module.named_parameters():
        if parameter.requires_grad is (name in frozen):
            parameter.requires_grad_(name not in frozen)
    for name, one in module.named_modules():
        one.training = name not in evaluating


def _restore_weights(module: nn.Module, saved: State, owner: str) -> None:
    current = module.state_dict()
    missing = [name for name in current if name not in saved]
    unexpected = [name for name in saved if name not in current]
    if missing or unexpected:
        lines = [("missing in the checkpoint", missing), ("only in the checkpoint", unexpected)]
        listed = (f"\n  {what}: {', '.join(names[:10])}" for what, names in lines if names)
        what = f"{owner}: its weights do not match the checkpoint"
        raise CheckpointError(what + "".join(listed))
    weights: Any = OrderedDict(
        {name: fit_to(one, current[name], f"{owner}.{name}") for name, one in saved.items()}
    )
    weights._metadata = getattr(current, "_metadata", None)  # torch's versions of layers
    try:
        module.load_state_dict(weights)
    except RuntimeError as error:  # a shape differs, or a hook of the module raises
        what = str(error).splitlines()[-1].strip()
        raise CheckpointError(f"{owner}: cannot load its saved weights\n  {what}") from error
