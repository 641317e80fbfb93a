"""The whole state of a run as trees by part, and back: bit for bit what later steps depend on."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from epochal.checkpoint import serialize_tree
from epochal.engine.device.seeding import generator_states, restore_generators
from epochal.engine.events.due import list_due_times, restore_due_times
from epochal.engine.measure.phase_timer import read_spent
from epochal.engine.state.module_state import collect_module, restore_module
from epochal.engine.state.optimizer_state import (
    collect_optimizer,
    name_all_parameters,
    restore_in_place,
    restore_optimizer,
)
from epochal.errors import CheckpointError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from epochal.engine.run import Run
    from epochal.engine.step.loss import Loss

    State = dict[str, Any]  # a tree of plain data and tensors

logger = logging.getLogger(__name__)

# Ends that others wished for; those that training came to by itself are its state.
EXTERNAL_STOPS = ("interrupted", "preempted")


def collect_state(run: Run) -> State:
    """A tree for every part; its tensors are the live ones, so it holds until the next step.

    The run is between two steps, and everybody got the means that were on their way.
    """
    state = {
        "model": collect_module(run.model),
        "updater": _collect_updater(run),
        "data": {
            "step": run.step,
            "epoch": run.epoch,
            "is_in_epoch": run.is_in_epoch,
            "position": run.feed.next_position if run.is_in_epoch else 0,
            "samples": run.feed.samples,
            "loader": run.feed.loader_state(),
        },
        "stage": run.course.state_dict(),
        "meter": run.meter.state_dict(),
        "metrics": {name: _collect_object(one) for name, one in run.train_metrics.items()},
        "plan": list_due_times(run.plan.dues),
        "clock": {**run.clock.state_dict(), "spent": read_spent(run).to_fields()},
        "latest": dict(run.latest),
        "evaluated_at": dict(run.evaluated_at),
        "choices": dict(run.choices),
        "caches": dict(run.caches),
        "rollbacks": run.rollbacks,
        "task": _collect_task(run),
        "attributes": run.attributes.collect(),
        "hooks": _collect_hooks(run),
        "log": {"points": getattr(run.writer, "num_points", None)},
        "stop": {"reason": run.stop_reason, "status": run.stop_status},
        "random": generator_states(),
    }
    if run.optimizer is not None:
        state["optim"] = collect_optimizer(run.optimizer, name_all_parameters(run))
        state["rate"] = run.updater.rate.state_dict()
    if run.average is not None:
        state["average"] = run.average.state_tensors()
    if run.loss is not None:
        state["loss"] = {"weights": dict(run.loss.weights), "module": collect_module(run.loss)}
    if run.monitor is not None:
        state["monitor"] = run.monitor.state_dict()
    return state


def restore_state(run: Run, state: Mapping[str, Any], *, is_strict: bool = True) -> None:
    """Put every part into a state, in place; random generators come last.

    Args:
        run: Bound and prepared as a new run is.
        state: What ``collect`` gave, perhaps in another process.
        is_strict: Refuse a checkpoint that lacks a part, or has one too many; else say so.

    Raises:
        CheckpointError: The parts are not those of the checkpoint.
    """
    _compare_parts(run, state, is_strict=is_strict)
    restore_module(run.model, state["model"], run.device, "model")
    if run.optimizer is not None and "optim" in state:
        restore_optimizer(run.optimizer, name_all_parameters(run), state["optim"])
        run.updater.rate.load_state_dict(state["rate"])
    if run.average is not None and "average" in state:
        _restore_tensors("average", run.average.state_tensors(), state["average"])
    if run.loss is not None and "loss" in state:
        _restore_loss(run.loss, state["loss"], run.device)
    if run.monitor is not None and "monitor" in state:
        run.monitor.load_state_dict(state["monitor"])
    _restore_updater(run, state["updater"])
    for name, metric in run.train_metrics.items():
        if name in state["metrics"]:
            _restore_object(metric, state["metrics"][name], run.device)
    run.meter.load_state_dict(state["meter"])
    _restore_task(run, state["task"])
    run.attributes.restore(state["attributes"])
    _restore_hooks(run, state["hooks"], is_strict=is_strict)
    run.latest.update(state["latest"])
    run.evaluated_at.update(state["evaluated_at"])
    run.caches.update(state["caches"])
    run.rollbacks = tuple(state.get("rollbacks", ()))
    run.choices = {**state["choices"], **run.choices}
    _restore_position(run, state)
    restore_generators(state["random"])


def restore_position(run: Run, state: Mapping[str, Any]) -> None:
    """Let a run know where it goes on, before anything else is put back."""
    data = state["data"]
    run.step = run.first_step = data["step"]
    run.epoch = data["epoch"]


def _restore_position(run: Run, state: Mapping[str, Any]) -> None:
    data = state["data"]
    run.step, run.epoch, run.is_in_epoch = data["step"], data["epoch"], data["is_in_epoch"]
    run.feed.start_at(data["epoch"], data["position"], data["samples"], loader=data.get("loader"))
    run.clock.load_state_dict(state["clock"])
    restore_due_times(run.plan.dues, state["plan"], run)
    run.plan.find_next_due(run)


def _compare_parts(run: Run, state: Mapping[str, Any], *, is_strict: bool) -> None:
    optional = {
        "optim": run.optimizer is not None,
        "rate": run.optimizer is not None,
        "average": run.average is not None,
        "loss": run.loss is not None,
        "monitor": run.monitor is not None,
    }
    missing = [name for name, is_here in optional.items() if is_here and name not in state]
    unexpected = [name for name, is_here in optional.items() if not is_here and name in state]
    metrics = state.get("metrics", {})
    missing += [f"metrics.{name}" for name in run.train_metrics if name not in metrics]
    unexpected += [f"metrics.{name}" for name in metrics if name not in run.train_metrics]
    _report_difference("parts", missing, unexpected, is_strict=is_strict)
    required = set(_REQUIRED) - state.keys()
    if required:
        raise CheckpointError(f"checkpoint: has no {', '.join(sorted(required))}: not one of a run")


_REQUIRED = (
    *("model", "updater", "data", "meter", "metrics", "plan", "clock", "latest", "evaluated_at"),
    *("choices", "caches", "task", "attributes", "hooks", "random"),
)


def _report_difference(
    what: str, missing: list[str], unexpected: list[str], *, is_strict: bool
) -> None:
    lines = [("missing in the checkpoint", missing), ("only in the checkpoint", unexpected)]
    listed = [f"{text}: {', '.join(names)}" for text, names in lines if names]
    if not listed:
        return
    if is_strict:
        message = f"checkpoint: its {what} are not those of the run"
        raise CheckpointError("\n  ".join([message, *listed]))
    logger.warning("the checkpoint's %s are not those of the run: %s", what, "; ".join(listed))


def _restore_tensors(owner: str, here: Mapping[str, Tensor], saved: Mapping[str, Tensor]) -> None:
    missing = [f"{owner}.{name}" for name in here if name not in saved]
    unexpected = [f"{owner}.{name}" for name in saved if name not in here]
    _report_difference("parts", missing, unexpected, is_strict=True)
    with torch.no_grad():
        for name, tensor in here.items():
            if tensor.shape != saved[name].shape:
                shapes = f"{tuple(saved[name].shape)} there, {tuple(tensor.shape)} here"
                raise CheckpointError(f"{owner}.{name}: has another shape: {shapes}")
            tensor.copy_(saved[name])


def _restore_loss(loss: Loss, state: State, device: torch.device) -> None:
    restore_module(loss, state["module"], device, "loss")
    # Terms that only one of both has are new, or gone: the config may have changed.
    loss.weights.update(
        {name: state["weights"].get(name, own) for name, own in loss.weights.items()}
    )


def _collect_updater(run: Run) -> State:
    updater: Any = run.updater  # one of the user's own may have a state_dict
    own = updater.state_dict() if hasattr(updater, "state_dict") else None
    return {"tensors": updater.state_tensors(), "own": own}


def _restore_updater(run: Run, state: State) -> None:
    updater: Any = run.updater
    _restore_tensors("updater", updater.state_tensors(), state["tensors"])
    if state["own"] is not None and hasattr(updater, "load_state_dict"):
        updater.load_state_dict(state["own"])


def _collect_object(part: Any) -> State:  # noqa: ANN401 - a metric of anybody
    """What an object gives as its state, or else its attributes as far as they can be kept."""
    if hasattr(part, "state_dict"):
        return {"own": part.state_dict()}
    kept, on_host = {}, []
    for name, value in vars(part).items():
        try:
            serialize_tree(value, name)
        except CheckpointError:
            continue
        kept[name] = value
        if isinstance(value, Tensor) and value.device.type == "cpu":
            on_host.append(name)
    return {"attributes": kept, "on_host": on_host}


def _restore_object(part: Any, state: State, device: torch.device) -> None:  # noqa: ANN401 - same
    if "own" in state:
        part.load_state_dict(state["own"])
        return
    for name, value in state["attributes"].items():
        place = torch.device("cpu") if name in state["on_host"] else device
        setattr(part, name, restore_in_place(getattr(part, name, None), value, place))


def _collect_task(run: Run) -> State:
    task = run.task
    if hasattr(task, "state_dict"):
        return {"own": task.state_dict()}
    own = getattr(task, "__dict__", {})
    modules = {name: part for name, part in own.items() if isinstance(part, nn.Module)}
    return {"modules": {name: collect_module(part) for name, part in modules.items()}}


def _restore_task(run: Run, state: State) -> None:
    if "own" in state:
        run.task.load_state_dict(state["own"])
        return
    for name, saved in state["modules"].items():
        part = getattr(run.task, name, None)
        if not isinstance(part, nn.Module):
            raise CheckpointError(
                f"task.{name}: is a module in the checkpoint, and here it is none"
            )
        restore_module(part, saved, run.device, f"task.{name}")


def _stateful_hooks(run: Run) -> dict[str, Any]:
    """Hooks that have a state, by class and order."""
    found: dict[str, Any] = {}
    for hook in run.events.hooks:
        if hasattr(hook, "state_dict") and hasattr(hook, "load_state_dict"):
            kind = type(hook).__name__
            number = sum(name.split("#")[0] == kind for name in found)
            found[f"{kind}#{number}"] = hook
    return found


def find_stateless_hooks(run: Run) -> list[str]:
    """Hooks of the user's own that hold tensors which no checkpoint keeps."""
    return [
        type(hook).__name__
        for hook in run.events.hooks
        if not hasattr(hook, "state_dict")
        and type(hook).__module__.split(".")[0] != "epochal"
        and any(isinstance(value, Tensor) for value in getattr(hook, "__dict__", {}).values())
    ]


def _collect_hooks(run: Run) -> State:
    return {name: hook.state_dict() for name, hook in _stateful_hooks(run).items()}


def _restore_hooks(run: Run, state: State, *, is_strict: bool) -> None:
    hooks = _stateful_hooks(run)
    missing = [name for name in hooks if name not in state]
    unexpected = [name for name in state if name not in hooks]
    _report_difference("hooks", missing, unexpected, is_strict=is_strict)
    for name, hook in hooks.items():
        if name in state:
            hook.load_state_dict(state[name])
