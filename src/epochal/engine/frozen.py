"""What a captured step would freeze: plain values of task and model, modes, random numbers."""

from __future__ import annotations

import random
from inspect import getattr_static
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from epochal.engine.plain import MODULE_NAMES, OF_THE_RUN, Freezer

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterable

    from epochal.engine.reads import Reads
    from epochal.engine.run import Run

Fingerprint = dict[str, "Hashable"]

_HOOKS = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")


def take_fingerprint(run: Run, reads: Reads | None = None) -> Fingerprint:
    """Every plain value that Python code of a step may read, by where it stands.

    Args:
        run: Whose task, store, model and optimizer are looked at.
        reads: What of task and store matters; all of it if None.
    """
    found: Fingerprint = {}
    freezer = Freezer(run.device)
    _add_task(found, freezer, run.task, None if reads is None else reads.task)
    for name in _stored(run) if reads is None else sorted(reads.store):
        found[f"run.store {name!r}"] = freezer.freeze(run.store.try_get(name))
    for name, module in run.model.named_modules():
        _add_module(found, freezer, f"model.{name}" if name else "model", module)
    for name, parameter in run.model.named_parameters():
        found[f"model.{name}.requires_grad"] = parameter.requires_grad
    for name, module in run.loss.named_modules() if run.loss is not None else ():
        _add_module(found, freezer, f"loss.{name}" if name else "loss", module)
    # Going back may have left the optimizer other tensors than those that were captured.
    found["the state of the run"] = len(run.rollbacks)
    return found | groups_fingerprint(run)


def _stored(run: Run) -> list[str]:
    store = vars(run.store)
    return sorted({name for table in (store["_globals"], *store["_frames"]) for name in table})


def groups_fingerprint(run: Run) -> Fingerprint:
    """The plain values of the optimizer's parameter groups; rates that are tensors may move."""
    found: Fingerprint = {}
    groups = [] if run.optimizer is None else run.optimizer.param_groups
    for index, group in enumerate(groups):
        for name, value in group.items():
            key = f"optim.{index}.{name}"
            if name == "params":
                found[key] = tuple([id(parameter) for parameter in value])
            elif name not in ("lr", "initial_lr") or not isinstance(group["lr"], Tensor):
                found[key] = Freezer(run.device).freeze(value)
    return found


def find_change(before: Fingerprint, after: Fingerprint) -> str:
    """Where two fingerprints differ first; empty if they are equal."""
    if before == after:
        return ""
    for name in {**before, **after}:
        if before.get(name, _OTHER) != after.get(name, _OTHER):
            return name
    return ""


_OTHER = object()


def _add_task(
    found: Fingerprint, freezer: Freezer, task: object, names: Iterable[str] | None
) -> None:
    own, prefix = getattr(task, "__dict__", {}), type(task).__name__
    if isinstance(task, nn.Module):
        for inner, module in task.named_modules():
            _add_module(found, freezer, f"{prefix}.{inner}".rstrip("."), module)
    # The loss function is read once, when the task's methods are bound, and not in the steps.
    for name in own if names is None else sorted({*names, "loss_fn"}):
        # Of a class attribute too: it may become one of the object, with the same value.
        value = own[name] if name in own else getattr_static(task, name, None)
        if name.endswith(OF_THE_RUN) or (isinstance(task, nn.Module) and name in MODULE_NAMES):
            continue
        if isinstance(value, nn.Module):
            for inner, module in value.named_modules():
                _add_module(found, freezer, f"{prefix}.{name}.{inner}".rstrip("."), module)
        else:
            found[f"{prefix}.{name}"] = freezer.freeze(value)


def _add_module(found: Fingerprint, freezer: Freezer, prefix: str, module: nn.Module) -> None:
    found[f"{prefix}.training"] = module.training
    for name in _HOOKS:
        found[f"{prefix}.{name}"] = len(getattr(module, name))
    for name, value in vars(module).items():
        if name not in MODULE_NAMES:
            found[f"{prefix}.{name}"] = freezer.freeze(value)


def random_states() -> tuple[object, ...]:
    """The states of the generators on the host, which a captured step never asks again."""
    import numpy as np

    name, keys, *rest = np.random.get_state(legacy=True)
    return (
        random.getstate(),
        (name, np.asarray(keys).tobytes(), *rest),
        torch.get_rng_state().numpy().tobytes(),
    )


def name_moved_generator(before: tuple[object, ...], after: tuple[object, ...]) -> str:
    """Which library's generator was drawn from; empty if none was."""
    names = ("Python's random", "numpy.random", "torch on the CPU")
    moved = (name for name, old, new in zip(names, before, after, strict=True) if old != new)
    return next(moved, "")
