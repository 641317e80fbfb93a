"""What a captured step would freeze: plain values of task and model, modes, random numbers."""

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
    from collections.abc import Callable, Hashable, Iterable, Iterator
    from types import FrameType

    from epochal.engine.interfaces.shared_store import Store
    from epochal.engine.run import Run


Fingerprint = dict[str, "Hashable"]

_HOOKS = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")


def take_fingerprint(run: Run, reads: StepDependencies | None = None) -> Fingerprint:
    """Every plain value that Python code of a step may read, by where it stands.

    Args:
        run: Whose task, store, model and optimizer are looked at.
        reads: What of task and store matters; all of it if None.
    """
    found: Fingerprint = {}
    freezer = ValueFingerprinter(run.device)
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
                found[key] = ValueFingerprinter(run.device).freeze(value)
    return found


def find_fingerprint_change(before: Fingerprint, after: Fingerprint) -> str:
    """Where two fingerprints differ first; empty if they are equal."""
    if before == after:
        return ""
    for name in {**before, **after}:
        if before.get(name, _OTHER) != after.get(name, _OTHER):
            return name
    return ""


_OTHER = object()


def _add_task(
    found: Fingerprint, freezer: ValueFingerprinter, task: object, names: Iterable[str] | None
) -> None:
    own, prefix = getattr(task, "__dict__", {}), type(task).__name__
    if isinstance(task, nn.Module):
        for inner, module in task.named_modules():
            _add_module(found, freezer, f"{prefix}.{inner}".rstrip("."), module)
    # The loss function is read once, when the task's methods are bound, and not in the steps.
    for name in own if names is None else sorted({*names, "loss_fn"}):
        # Of a class attribute too: it may become one of the object, with the same value.
        value = own[name] if name in own else getattr_static(task, name, None)
        if name.endswith(RUN_OWNED_SUFFIXES) or (
            isinstance(task, nn.Module) and name in MODULE_ATTRIBUTES
        ):
            continue
        if isinstance(value, nn.Module):
            for inner, module in value.named_modules():
                _add_module(found, freezer, f"{prefix}.{name}.{inner}".rstrip("."), module)
        else:
            found[f"{prefix}.{name}"] = freezer.freeze(value)


def _add_module(
    found: Fingerprint, freezer: ValueFingerprinter, prefix: str, module: nn.Module
) -> None:
    found[f"{prefix}.training"] = module.training
    for name in _HOOKS:
        found[f"{prefix}.{name}"] = len(getattr(module, name))
    for name, value in vars(module).items():
        if name not in MODULE_ATTRIBUTES:
            found[f"{prefix}.{name}"] = freezer.freeze(value)


_POSITION = ("step", "epoch", "samples", "batch_index", "epoch_number", "latest")
_PARTS_THAT_MOVE = ("learning_rates", "feed", "clock", "monitor", "updater")
_CHANGING = (*_POSITION, *_PARTS_THAT_MOVE)


@final
@dataclass(frozen=True)
class StepDependencies:
    """Names that steps read; what they do not read may change."""

    task: set[str] | None = field(default_factory=set)
    """Attributes of the task; None where that cannot be seen, and all of them count."""

    store: set[str] = field(default_factory=set)

    def joined(self, other: StepDependencies) -> StepDependencies:
        """What any of both reads."""
        is_seen = self.task is not None and other.task is not None
        task = (self.task or set()) | (other.task or set()) if is_seen else None
        return StepDependencies(task, self.store | other.store)


@contextmanager
def recording_position_reads(run: Run) -> Iterator[list[str]]:
    """Note which lines outside of Epochal read the position of the run in a block.

    Such a number would be the same for ever in a captured step.
    """
    reads: list[str] = []
    own_kind: Any = type(run)

    def watched(name: str) -> property:
        inherited = getattr(own_kind, name, None)
        compute = inherited.fget if isinstance(inherited, property) else None

        def read(self: Run) -> object:
            line = find_user_line(sys._getframe(1))
            if line:
                reads.append(f"run.{name} is read in {line}")
            return vars(self)[name] if compute is None else compute(self)

        def write(self: Run, value: object) -> None:
            vars(self)[name] = value

        return property(read, write)

    for name in _CHANGING:  # defaults of the class become values of the object, to be found
        if not isinstance(getattr(own_kind, name, None), property):
            vars(run).setdefault(name, getattr(run, name))
    kind = type(own_kind)(own_kind.__name__, (own_kind,), {n: watched(n) for n in _CHANGING})
    run.__class__ = kind
    try:
        yield reads
    finally:
        run.__class__ = own_kind


@contextmanager
def recording_store_reads(store: Store) -> Iterator[set[str]]:
    """Note which names of a store are looked up in a block."""
    names: set[str] = set()
    own_kind: Any = type(store)

    def watched(method: str) -> Callable[..., object]:
        def look_up(self: Store, name: str, *default: object) -> object:
            names.add(name)
            return getattr(own_kind, method)(self, name, *default)

        return look_up

    methods = {name: watched(name) for name in ("get", "try_get", "__contains__")}
    store.__class__ = type(own_kind.__name__, (own_kind,), methods)
    try:
        yield names
    finally:
        store.__class__ = own_kind


@contextmanager
def recording_attribute_reads(owner: object) -> Iterator[set[str] | None]:
    """Note which attributes of an object are read in a block; None where that cannot be seen."""
    names: set[str] = set()
    own_kind: Any = type(owner)

    def read(self: object, name: str) -> object:
        names.add(name)
        return own_kind.__getattribute__(self, name)

    if _notices_subclasses(own_kind):
        yield None
        return
    try:
        kind = type(own_kind)(own_kind.__name__, (own_kind,), {"__getattribute__": read})
        # Past a __setattr__ of its own, such as that of a frozen dataclass.
        object.__setattr__(owner, "__class__", kind)
    except Exception:  # its layout or its metaclass does not allow it
        yield None
        return
    try:
        yield names
    finally:
        object.__setattr__(owner, "__class__", own_kind)


def _notices_subclasses(kind: type) -> bool:
    """Whether a class keeps a list of its subclasses or the like."""
    return any(
        "__init_subclass__" in vars(one) and one.__module__ not in ("builtins", "typing")
        for one in kind.__mro__
    )


def find_user_line(frame: FrameType | None) -> str:
    """The line of a frame that is neither Epochal's nor torch's; empty if it is."""
    if frame is None:
        return ""
    module = str(frame.f_globals.get("__name__", ""))
    if module.split(".")[0] in ("epochal", "torch"):
        return ""
    return f"{frame.f_code.co_filename}:{frame.f_lineno}"
