"""What a captured step would freeze: plain values of task and model, modes, random numbers."""

from __future__ import annotations

import copy
import random
import sys
from contextlib import contextmanager
from enum import Enum
from inspect import getattr_static
from typing import TYPE_CHECKING, Any, final

import torch
from torch import Tensor, nn

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterable, Iterator
    from types import FrameType

    from epochal.engine.run import Run

Fingerprint = dict[str, "Hashable"]

_PLAIN = (type(None), bool, int, float, complex, str, bytes, Enum, torch.dtype, torch.device)
_LARGEST = 1000  # items of a container that are looked at
_MODULE_NAMES = frozenset(vars(nn.Module()))
_HOOKS = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")
OF_THE_RUN = ("_loader", "meta")  # attributes of a task that the run itself reads and changes
_POSITION = ("step", "epoch", "samples", "batch_index", "epoch_number", "latest")


def take_fingerprint(run: Run, task_names: Iterable[str] | None = None) -> Fingerprint:
    """Every plain value that Python code of a step may read, by where it stands.

    Args:
        run: Whose task, model and optimizer are looked at.
        task_names: The attributes of the task that matter; all of them if None.
    """
    found: Fingerprint = {}
    _add_object(found, type(run.task).__name__, run.task, task_names)
    for name, module in run.model.named_modules():
        _add_module(found, f"model.{name}" if name else "model", module)
    for name, parameter in run.model.named_parameters():
        found[f"model.{name}.requires_grad"] = parameter.requires_grad
    return found | groups_fingerprint(run)


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
                found[key] = freeze(value)
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


def _add_object(
    found: Fingerprint, prefix: str, owner: object, names: Iterable[str] | None
) -> None:
    own = getattr(owner, "__dict__", {})
    for name in own if names is None else names:
        # Of a class attribute too: it may become one of the object, with the same value.
        value = own[name] if name in own else getattr_static(owner, name, None)
        if name.endswith(OF_THE_RUN):
            continue
        if isinstance(value, nn.Module):
            for inner, module in value.named_modules():
                _add_module(found, f"{prefix}.{name}.{inner}".rstrip("."), module)
        else:
            found[f"{prefix}.{name}"] = freeze(value)


def _add_module(found: Fingerprint, prefix: str, module: nn.Module) -> None:
    found[f"{prefix}.training"] = module.training
    for name in _HOOKS:
        found[f"{prefix}.{name}"] = len(getattr(module, name))
    for name, value in vars(module).items():
        if name not in _MODULE_NAMES:
            found[f"{prefix}.{name}"] = freeze(value)


@final
class PlainState:
    """The plain attributes of a run's task and of all modules, to be put back later.

    Args:
        run: Whose task and model are kept.
    """

    def __init__(self, run: Run) -> None:
        owners: list[object] = [run.task, *run.model.modules()]
        for value in list(getattr(run.task, "__dict__", {}).values()):
            owners += value.modules() if isinstance(value, nn.Module) else []
        self._kept: list[tuple[object, dict[str, tuple[Any, Any]]]] = [
            (owner, {name: (value, _copy(value)) for name, value in vars(owner).items()})
            for owner in owners
            if hasattr(owner, "__dict__")
        ]

    def restore(self) -> None:
        """Put everything back, containers in place; what was added since is taken away."""
        for owner, kept in self._kept:
            own = vars(owner)
            for name in own.keys() - kept.keys():
                del own[name]
            for name, (value, copied) in kept.items():
                if type(value) is list:
                    value[:] = copied
                elif type(value) in (dict, set):
                    value.clear()
                    value.update(copied)
                own[name] = value


def _copy(value: object) -> object:
    """The contents of a plain container, which can be changed in place."""
    return copy.copy(value) if type(value) in (list, dict, set) else None


def freeze(value: object) -> Hashable:
    """A value that can be compared later; of tensors only that there is one."""
    if isinstance(value, _PLAIN):
        return value
    if isinstance(value, Tensor):
        return Tensor
    if isinstance(value, list | tuple | set | frozenset | dict):
        if len(value) > _LARGEST:
            return type(value), len(value)
        items = value.items() if isinstance(value, dict) else value
        frozen = [freeze(item) for item in items]
        return type(value), frozenset(frozen) if isinstance(value, set) else tuple(frozen)
    return type(value), id(value)


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


@contextmanager
def noting_positions(run: Run) -> Iterator[list[str]]:
    """Note which lines outside of Epochal read the position of the run in a block.

    Such a number would be the same for ever in a captured step.
    """
    reads: list[str] = []
    own_kind: Any = type(run)

    def watched(name: str) -> property:
        inherited = getattr(own_kind, name, None)
        compute = inherited.fget if isinstance(inherited, property) else None

        def read(self: Run) -> object:
            line = outside_line(sys._getframe(1))
            if line:
                reads.append(f"run.{name} is read in {line}")
            return vars(self)[name] if compute is None else compute(self)

        def write(self: Run, value: object) -> None:
            vars(self)[name] = value

        return property(read, write)

    for name in _POSITION:  # defaults of the class become values of the object, to be found
        if not isinstance(getattr(own_kind, name, None), property):
            vars(run).setdefault(name, getattr(run, name))
    kind = type(own_kind)(own_kind.__name__, (own_kind,), {n: watched(n) for n in _POSITION})
    run.__class__ = kind
    try:
        yield reads
    finally:
        run.__class__ = own_kind


@contextmanager
def noting_attributes(owner: object) -> Iterator[set[str] | None]:
    """Note which attributes of an object are read in a block; None where that cannot be seen."""
    names: set[str] = set()
    own_kind: Any = type(owner)

    def read(self: object, name: str) -> object:
        names.add(name)
        return own_kind.__getattribute__(self, name)

    try:
        kind = type(own_kind)(own_kind.__name__, (own_kind,), {"__getattribute__": read})
        owner.__class__ = kind
    except TypeError:  # its layout or its metaclass does not allow it
        yield None
        return
    try:
        yield names
    finally:
        owner.__class__ = own_kind


def outside_line(frame: FrameType | None) -> str:
    """The line of a frame that is neither Epochal's nor torch's; empty if it is."""
    if frame is None:
        return ""
    module = str(frame.f_globals.get("__name__", ""))
    if module.split(".")[0] in ("epochal", "torch"):
        return ""
    return f"{frame.f_code.co_filename}:{frame.f_lineno}"
