"""Finds objects of a run and tensors that steps change, and makes comparable values of them."""

from __future__ import annotations

import random
import sys
from collections import deque
from enum import Enum
from typing import TYPE_CHECKING, Any, final

import numpy as np
import torch
from torch import Tensor, nn
from torch.optim import Optimizer
from torch.utils.data import DataLoader

from epochal.engine.device.seeding import fingerprint_generator_state, read_generator_state

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterator, Mapping

    from epochal.engine.run.engine_run import EngineRun

    Value = Any  # attributes of a task can be of any type

_PLAIN = (type(None), bool, int, float, complex, str, bytes, Enum, torch.dtype, torch.device)
_MAX_ITEMS = 1000  # larger containers are not searched
MAX_ARRAY_BYTES = 1 << 16  # larger arrays are not read
_MAX_DEPTH = 8
_MAX_VALUES = 100_000  # in all
_NAMESPACES = ("types.SimpleNamespace", "argparse.Namespace")
_OPAQUE_LIBRARIES = frozenset({*sys.stdlib_module_names, "epochal", "numpy", "torch"})
_SHARED_BY_THREADS = ("_thread", "threading", "queue", "multiprocessing", "concurrent")
RUN_OWNED_SUFFIXES = ("_loader", "meta")
"""Of attributes of a task that the run itself reads and changes."""

MODULE_ATTRIBUTES = frozenset(vars(nn.Module()))
_SMALL = 1 << 20  # bytes; larger tensors of a task on the host are its data


def read_own_attributes(owner: object) -> dict[str, Any]:
    """The instance attributes of an object, those in slots too."""
    found = dict(getattr(owner, "__dict__", {}))
    for kind in type(owner).__mro__:
        slots = kind.__dict__.get("__slots__", ())
        for name in (slots,) if isinstance(slots, str) else slots:
            if name not in ("__dict__", "__weakref__") and hasattr(owner, name):
                found[name] = getattr(owner, name)
    return found


def walk_run_objects(run: EngineRun) -> Iterator[tuple[str, object]]:
    """Path and value of each object that task, store, model and loss hold, each object once.

    Containers, modules and plain objects are searched; objects of libraries are not.
    """
    known: set[int] = set()
    roots = ("task", run.task), ("store", vars(run.store)), ("model", run.model), ("loss", run.loss)
    for root in roots:
        waiting: deque[tuple[str, object]] = deque([root])
        while waiting and len(known) < _MAX_VALUES:
            path, value = waiting.popleft()
            if id(value) in known or isinstance(value, _PLAIN):
                continue
            known.add(id(value))
            yield path, value
            is_task = value is run.task
            for name, part in _parts(value, is_root=is_task):
                if not (is_task and name.endswith(RUN_OWNED_SUFFIXES)):
                    waiting.append((path + name, part))


def _parts(value: object, *, is_root: bool = False) -> list[tuple[str, object]]:
    """The items or attributes of a value, with names."""
    if isinstance(value, dict | list | tuple | set | frozenset | deque):
        if len(value) > _MAX_ITEMS:
            return []
        items = value.items() if isinstance(value, dict) else enumerate(value)
        return [(f"[{key!r}]", item) for key, item in items]
    if is_root or isinstance(value, nn.Module) or is_plain_object(value):
        return [(f".{name}", part) for name, part in read_own_attributes(value).items()]
    return []


def is_plain_object(value: object) -> bool:
    """Whether it is of a user's class, and not shared with other threads."""
    kind = type(value)
    if f"{kind.__module__}.{kind.__qualname__}" in _NAMESPACES:
        return True
    if isinstance(value, type | DataLoader | Optimizer | random.Random | np.ndarray | Tensor):
        return False
    if kind.__module__.split(".")[0] in _OPAQUE_LIBRARIES:
        return False
    parts = read_own_attributes(value).values()
    return not any(type(one).__module__.split(".")[0] in _SHARED_BY_THREADS for one in parts)


def fingerprint_value(value: object) -> Hashable:
    """A comparable value; objects are compared by identity, not by their attributes."""
    if isinstance(value, _PLAIN):
        return value
    if isinstance(value, Tensor):
        return Tensor
    if isinstance(value, list | tuple | set | frozenset | dict):
        if len(value) > _MAX_ITEMS:
            return type(value), len(value)
        items = value.items() if isinstance(value, dict) else value
        frozen = [fingerprint_value(item) for item in items]
        return type(value), frozenset(frozen) if isinstance(value, set) else tuple(frozen)
    return type(value), id(value)


@final
class ValueFingerprinter:
    """Makes comparable values of plain values and the attributes of objects.

    Steps treat a scalar tensor on another device than theirs as a constant.
    """

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._known: set[int] = set()

    def fingerprint(self, value: object, depth: int = 0) -> Hashable:
        """A value that is equal as long as nothing changes; contents of tensors do not count."""
        if isinstance(value, _PLAIN):
            return value
        if isinstance(value, Tensor):
            return self._fingerprint_tensor(value)
        if isinstance(value, list | tuple | set | frozenset | dict | deque):
            return self._fingerprint_container(value, depth)
        if id(value) in self._known or depth > _MAX_DEPTH or len(self._known) > _MAX_VALUES:
            return type(value), id(value)
        self._known.add(id(value))
        return type(value), id(value), self._fingerprint_inside(value, depth + 1)

    def _fingerprint_inside(self, value: object, depth: int) -> Hashable:
        if isinstance(value, np.ndarray):
            is_small = value.nbytes <= MAX_ARRAY_BYTES and not value.dtype.hasobject
            return value.shape, value.tobytes() if is_small else b""
        if isinstance(value, nn.Module):
            return tuple([self.fingerprint_module(module, depth) for module in value.modules()])
        state = read_generator_state(value)
        if state is not None:
            is_on_host = not isinstance(value, torch.Generator) or value.device.type == "cpu"
            return fingerprint_generator_state(state) if is_on_host else ()
        return tuple([(name, self.fingerprint(part, depth)) for name, part in _parts(value)])

    def fingerprint_module(self, module: nn.Module, depth: int = 0) -> Hashable:
        """The mode and the plain attributes of one module."""
        own = [item for item in vars(module).items() if item[0] not in MODULE_ATTRIBUTES]
        frozen = tuple([(name, self.fingerprint(value, depth)) for name, value in own])
        return module.training, frozen

    def _fingerprint_container(self, value: Value, depth: int) -> Hashable:
        if len(value) > _MAX_ITEMS or depth > _MAX_DEPTH:
            return type(value), len(value)
        items = value.items() if isinstance(value, dict) else value
        frozen = [self.fingerprint(item, depth + 1) for item in items]
        is_set = isinstance(value, set | frozenset)
        return type(value), frozenset(frozen) if is_set else tuple(frozen)

    def _fingerprint_tensor(self, value: Tensor) -> Hashable:
        is_constant = value.dim() == 0 and value.device.type == "cpu" != self._device.type
        return (Tensor, repr(value.item())) if is_constant else Tensor  # a repr equals itself


def find_state_tensors(run: EngineRun) -> dict[str, Tensor]:
    """The tensors that a step changes in place, by name; tied ones once."""
    found: dict[str, Tensor] = {}
    known: set[int] = set()
    for name, tensor in _iter_state_tensors(run):
        if id(tensor) not in known:
            known.add(id(tensor))
            found[name] = tensor
    return found


def _iter_state_tensors(run: EngineRun) -> Iterator[tuple[str, Tensor]]:
    yield from _of_module("model", run.model)
    if run.loss is not None:
        yield from _of_module("loss", run.loss)
    if run.optimizer is not None:
        yield from _of_optimizer(run.optimizer)
    for part in run.parts:
        if hasattr(part, "state_tensors"):  # the updater
            yield from _prefixed(type(part).__name__.lower(), part.state_tensors())
    if run.average is not None:
        yield from _prefixed("average", run.average.state_tensors())
    yield from _prefixed("meter", run.meter.state_tensors())
    for path, part in walk_run_objects(run):
        if path.startswith("model"):
            break  # its parameters and buffers are known, and other tensors live for one step
        if isinstance(part, nn.Module):
            yield from _of_module(path, part)
        elif isinstance(part, Tensor) and _can_be_restored(part, run.device):
            yield path, part


def _can_be_restored(tensor: Tensor, device: torch.device) -> bool:
    """Whether a step may have changed a tensor, and its contents can be written back."""
    if tensor.layout != torch.strided or tensor.is_meta or tensor.is_inference():
        return False
    is_expanded = any(
        stride == 0 and size > 1 for stride, size in zip(tensor.stride(), tensor.shape, strict=True)
    )
    is_data = tensor.device.type != device.type and tensor.nbytes > _SMALL
    return not is_expanded and not is_data


def _of_module(prefix: str, module: nn.Module) -> Iterator[tuple[str, Tensor]]:
    for name, parameter in module.named_parameters(remove_duplicate=False):
        yield f"{prefix}.{name}", parameter
    for name, buffer in module.named_buffers(remove_duplicate=False):
        yield f"{prefix}.{name}", buffer


def _of_optimizer(optimizer: torch.optim.Optimizer) -> Iterator[tuple[str, Tensor]]:
    for index, group in enumerate(optimizer.param_groups):
        for name, value in group.items():
            if isinstance(value, Tensor):
                yield f"optim.{index}.{name}", value
        for number, parameter in enumerate(group["params"]):  # perhaps not the model's
            yield f"optim.{index}.params.{number}", parameter
    for index, state in enumerate(optimizer.state.values()):
        for name, value in _tensors_in(state):
            yield f"optim.state.{index}.{name}", value


def _tensors_in(state: object) -> Iterator[tuple[str, Tensor]]:
    if isinstance(state, Tensor):
        yield "", state
    elif isinstance(state, dict):
        for name, value in state.items():
            for inner, tensor in _tensors_in(value):
                yield f"{name}.{inner}" if inner else str(name), tensor


def _prefixed(prefix: str, tensors: Mapping[str, Tensor]) -> Iterator[tuple[str, Tensor]]:
    for name, tensor in tensors.items():
        yield f"{prefix}.{name}", tensor
