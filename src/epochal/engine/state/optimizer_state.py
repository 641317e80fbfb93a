"""Collects and restores the state of an optimizer by the names of its parameters."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.optim import Optimizer

from epochal.checkpoint.sharded import fit_state
from epochal.distributed.sharded_tensor import is_sharded
from epochal.engine.optim.optim_groups import task_parameters
from epochal.errors import CheckpointError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from epochal.engine.run.engine_run import EngineRun

    State = dict[str, Any]  # a tree of plain data and tensors

IMPLEMENTATION_OPTIONS = frozenset({"params", "fused", "foreach", "capturable", "differentiable"})
"""Keys of groups that change how a step is computed, not its result: an optimizer keeps its own."""


def name_all_parameters(run: EngineRun) -> dict[str, Tensor]:
    """Every parameter by its first name: of the model, the task, the loss, or the optimizer."""
    found: dict[str, Tensor] = {**dict(run.model.named_parameters()), **task_parameters(run.task)}
    for name, parameter in run.loss.named_parameters() if run.loss is not None else ():
        found[f"loss.{name}"] = parameter
    groups = [] if run.optimizer is None else run.optimizer.param_groups
    for index, group in enumerate(groups):
        for place, parameter in enumerate(group["params"]):
            found[f"group {index}, parameter {place}"] = parameter
    unique = {id(parameter): name for name, parameter in reversed(found.items())}
    return {name: one for name, one in found.items() if unique[id(one)] == name}


def collect_optimizer(optimizer: Optimizer, parameters: Mapping[str, Tensor]) -> State:
    """Groups in order, and the state of every parameter by its name."""
    names = _names(parameters)
    if type(optimizer).state_dict is not Optimizer.state_dict:
        return {"own": optimizer.state_dict()}
    groups = [
        {
            "params": [names[id(parameter)] for parameter in group["params"]],
            "options": {
                name: value for name, value in group.items() if name not in IMPLEMENTATION_OPTIONS
            },
        }
        for group in optimizer.param_groups
    ]
    states: State = {}
    others: State = {}
    on_host: dict[str, list[str]] = {}
    current: dict[Any, Any] = optimizer.state  # torch declares tensors, but takes other keys too
    for key, state in current.items():
        if not isinstance(key, Tensor):
            others[str(key)] = state
            continue
        name = names[id(key)]
        states[name] = dict(state)
        on_host[name] = [part for part, value in state.items() if _is_on_host(value, key)]
    return {"groups": groups, "state": states, "others": others, "on_host": on_host}


def restore_optimizer(optimizer: Optimizer, parameters: Mapping[str, Tensor], state: State) -> None:
    """Restore a state in the existing tensors; missing ones are created.

    Groups that were added during the run are added again; other groups are refused.
    """
    if "own" in state:
        optimizer.load_state_dict(state["own"])
        return
    names = _names(parameters)
    _restore_groups(optimizer, parameters, state["groups"])
    current: dict[Any, Any] = optimizer.state
    for key in [key for key in current if names.get(id(key)) not in state["state"]]:
        del current[key]
    for name, saved in state["state"].items():
        parameter = parameters[name]
        own = current[parameter]
        for part in own.keys() - saved.keys():
            del own[part]
        for part, value in saved.items():
            is_on_host = part in state["on_host"].get(name, ())
            device = torch.device("cpu") if is_on_host else parameter.device
            own[part] = restore_in_place(own.get(part), fit_state(value, parameter), device)
    current.update(state["others"])


def restore_in_place(existing: object, value: Any, device: torch.device) -> Any:  # noqa: ANN401 - any tree
    """The value with existing tensors overwritten; new tensors are created on a device."""
    if isinstance(value, Tensor):
        fits = (
            isinstance(existing, Tensor)
            and existing.shape == value.shape
            and existing.dtype == value.dtype
        )
        if not fits or is_sharded(value) is not is_sharded(existing):
            return value.detach().to(device, copy=True)
        assert isinstance(existing, Tensor)
        with torch.no_grad():
            existing.detach().copy_(value)
        return existing
    if type(value) in (list, tuple):
        olds = list(existing) if isinstance(existing, list | tuple) else []
        olds += [None] * (len(value) - len(olds))
        return type(value)(
            restore_in_place(old, new, device) for old, new in zip(olds, value, strict=False)
        )
    if type(value) is dict:
        known = existing if isinstance(existing, dict) else {}
        return {key: restore_in_place(known.get(key), new, device) for key, new in value.items()}
    return value


def _names(parameters: Mapping[str, Tensor]) -> dict[int, str]:
    return {id(parameter): name for name, parameter in parameters.items()}


def _restore_groups(
    optimizer: Optimizer, parameters: Mapping[str, Tensor], saved: list[State]
) -> None:
    names, groups = _names(parameters), optimizer.param_groups
    held = {names[id(parameter)] for group in groups for parameter in group["params"]}
    for group in saved[len(groups) :]:
        if all(name in parameters and name not in held for name in group["params"]):
            optimizer.add_param_group({"params": [parameters[name] for name in group["params"]]})
    here = [[names[id(parameter)] for parameter in group["params"]] for group in groups]
    there = [group["params"] for group in saved]
    if here != there:
        raise CheckpointError(
            "optim: its parameter groups do not match the checkpoint\n"
            f"  here {_describe(here)}, there {_describe(there)}"
            f"{_first_difference(here, there)}"
        )
    for group, one in zip(groups, saved, strict=True):
        for name, value in one["options"].items():
            group[name] = _restore_option(group.get(name), value)


def _restore_option(existing: object, value: Any) -> Any:  # noqa: ANN401 - any option of a group
    if isinstance(existing, Tensor):
        with torch.no_grad():
            existing.copy_(torch.as_tensor(value))
        return existing
    if isinstance(value, Tensor) and isinstance(existing, float):
        return float(value)
    return value


def _is_on_host(value: object, parameter: Tensor) -> bool:
    """Whether a tensor is on the host although its parameter is not, such as a step count."""
    is_host = isinstance(value, Tensor) and value.device.type == "cpu"
    return is_host and parameter.device.type != "cpu"


def _describe(groups: list[list[str]]) -> str:
    counts = " + ".join(str(len(group)) for group in groups) or "none"
    return f"{counts} parameters"


def _first_difference(here: list[list[str]], there: list[list[str]]) -> str:
    flat_here = {name for group in here for name in group}
    flat_there = {name for group in there for name in group}
    missing, unexpected = sorted(flat_here - flat_there), sorted(flat_there - flat_here)
    if not missing and not unexpected:
        return (
            "\n  the same parameters are grouped in another way: use the groups of the checkpoint,"
            "\n  or start a new run with its weights: init_from"
        )
    lines = [("missing in the checkpoint", missing), ("only in the checkpoint", unexpected)]
    return "".join(f"\n  {what}: {', '.join(names[:5])}" for what, names in lines if names)
