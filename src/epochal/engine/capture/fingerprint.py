"""Finds Python values that a CUDA graph would make constant, and detects when they change."""

from __future__ import annotations

import sys
from contextlib import contextmanager
from dataclasses import dataclass, field
from inspect import getattr_static
from typing import TYPE_CHECKING, Any, final

from torch import Tensor, nn

from epochal.engine.snapshot.run_objects import (
    MODULE_ATTRIBUTES,
    RUN_OWNED_SUFFIXES,
    ValueFingerprinter,
)

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterable, Iterator
    from types import FrameType

    from epochal.engine.run.engine_run import EngineRun

Fingerprint = dict[str, "Hashable"]

_HOOKS = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")
_MISSING = object()
_POSITION_ATTRIBUTES = (
    *("step", "epoch", "samples", "batch_index", "epoch_number", "latest"),
    *("learning_rates", "used_learning_rates", "feed", "clock", "monitor", "updater"),
)


def take_fingerprint(run: EngineRun, reads: StepDependencies | None = None) -> Fingerprint:
    """Every plain value that a step may read, by its path; of task and store only ``reads``."""
    found: Fingerprint = {}
    fingerprinter = ValueFingerprinter(run.device)
    _add_task(found, fingerprinter, run.task, None if reads is None else reads.task)
    for name in _list_store_names(run) if reads is None or reads.has_store else ():
        found[f"run.store {name!r}"] = fingerprinter.fingerprint(run.store.try_get(name))
    for name, module in run.model.named_modules():
        _add_module(found, fingerprinter, f"model.{name}" if name else "model", module)
    for name, parameter in run.model.named_parameters():
        found[f"model.{name}.requires_grad"] = parameter.requires_grad
    for name, module in run.loss.named_modules() if run.loss is not None else ():
        _add_module(found, fingerprinter, f"loss.{name}" if name else "loss", module)
    # A rollback may have replaced the tensors of the optimizer.
    found["the state of the run"] = len(run.rollbacks)
    return found | groups_fingerprint(run)


def _list_store_names(run: EngineRun) -> list[str]:
    store = vars(run.store)
    return sorted({name for table in (store["_globals"], *store["_frames"]) for name in table})


def groups_fingerprint(run: EngineRun) -> Fingerprint:
    """The plain values of the optimizer's groups; learning rates that are tensors may change."""
    found: Fingerprint = {}
    groups = [] if run.optimizer is None else run.optimizer.param_groups
    for index, group in enumerate(groups):
        for name, value in group.items():
            key = f"optim.{index}.{name}"
            if name == "params":
                found[key] = tuple([id(parameter) for parameter in value])
            elif name not in ("lr", "initial_lr") or not isinstance(group["lr"], Tensor):
                found[key] = ValueFingerprinter(run.device).fingerprint(value)
    return found


def find_fingerprint_change(before: Fingerprint, after: Fingerprint) -> str:
    """The first path at which two fingerprints differ; empty if they are equal."""
    if before == after:
        return ""
    for name in {**before, **after}:
        if before.get(name, _MISSING) != after.get(name, _MISSING):
            return name
    return ""


def _add_task(
    found: Fingerprint, fingerprinter: ValueFingerprinter, task: object, names: Iterable[str] | None
) -> None:
    own, prefix = getattr(task, "__dict__", {}), type(task).__name__
    if isinstance(task, nn.Module):
        for inner, module in task.named_modules():
            _add_module(found, fingerprinter, f"{prefix}.{inner}".rstrip("."), module)
    # The loss function is read once, when the task's methods are bound, not in steps.
    for name in own if names is None else sorted({*names, "loss_fn"}):
        # Class attributes too: one may become an instance attribute with the same value.
        value = own[name] if name in own else getattr_static(task, name, None)
        if name.endswith(RUN_OWNED_SUFFIXES) or (
            isinstance(task, nn.Module) and name in MODULE_ATTRIBUTES
        ):
            continue
        if isinstance(value, nn.Module):
            for inner, module in value.named_modules():
                _add_module(found, fingerprinter, f"{prefix}.{name}.{inner}".rstrip("."), module)
        else:
            found[f"{prefix}.{name}"] = fingerprinter.fingerprint(value)


def _add_module(
    found: Fingerprint, fingerprinter: ValueFingerprinter, prefix: str, module: nn.Module
) -> None:
    found[f"{prefix}.training"] = module.training
    for name in _HOOKS:
        found[f"{prefix}.{name}"] = len(getattr(module, name))
    for name, value in vars(module).items():
        if name not in MODULE_ATTRIBUTES:
            found[f"{prefix}.{name}"] = fingerprinter.fingerprint(value)


@final
@dataclass(frozen=True)
class StepDependencies:
    """What steps read of task and store; what they do not read may change."""

    task: set[str] | None = field(default_factory=set)
    """Attributes of the task; None where that is unknown, and all of them count."""

    has_store: bool = False
    """Whether they read the store, whose names count then."""

    def union(self, other: StepDependencies) -> StepDependencies:
        """What either of them reads."""
        is_known = self.task is not None and other.task is not None
        task = (self.task or set()) | (other.task or set()) if is_known else None
        return StepDependencies(task, self.has_store or other.has_store)


@contextmanager
def recording_reads(owner: object) -> Iterator[dict[str, str] | None]:
    """Note which attributes of an object are read in a block; None if its class forbids it.

    The value of a name is the line of user code that read it first; empty if none did.
    """
    kind: Any = type(owner)
    own, original = vars(kind).get("__getattribute__"), kind.__getattribute__
    lines: dict[str, str] = {}

    def read(self: object, name: str) -> object:
        if self is owner:
            lines[name] = lines.get(name) or find_user_line(sys._getframe(1))
        return original(self, name)

    try:
        kind.__getattribute__ = read
    except Exception:  # a class of C code, or a metaclass that refuses
        yield None
        return
    try:
        yield lines
    finally:
        if own is None:
            del kind.__getattribute__
        else:
            kind.__getattribute__ = own


def find_position_read(lines: dict[str, str]) -> str:
    """The first line of user code that read the position of the run; empty if none did."""
    found = (name for name in _POSITION_ATTRIBUTES if lines.get(name))
    return next((f"run.{name} is read in {lines[name]}" for name in found), "")


def find_user_line(frame: FrameType | None) -> str:
    """File and line of a frame of user code; empty for code of Epochal or torch."""
    if frame is None:
        return ""
    module = str(frame.f_globals.get("__name__", ""))
    if module.split(".")[0] in ("epochal", "torch"):
        return ""
    return f"{frame.f_code.co_filename}:{frame.f_lineno}"
