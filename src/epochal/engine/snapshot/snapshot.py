"""The state of a run at one moment, taken, compared and restored; changes for a block."""

from __future__ import annotations

import copy
from collections import deque
from contextlib import contextmanager
from functools import partial
from operator import is_
from typing import TYPE_CHECKING, Any, final

import numpy as np
import torch
from torch import Tensor, nn

from epochal.engine.device.seeding import (
    derive_seed,
    generator_states,
    read_generator_state,
    restore_generators,
    seeded,
    set_generator_state,
)
from epochal.engine.feed.loaders import find_stateful_owner
from epochal.engine.snapshot.run_objects import (
    MAX_ARRAY_BYTES,
    find_state_tensors,
    is_plain_object,
    read_own_attributes,
    walk_run_objects,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from epochal.engine.run.engine_run import EngineRun

    Value = Any  # attributes of a task can be of any type
    Restore = Callable[[], object]

_FREE_MEMORY_FACTOR = 10  # a trial keeps four copies for a while, and steps need memory too
_INTEGERS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
_MISSING = object()


@final
class Snapshot:
    """Tensors, Python objects and random generators of a run, as they are now, between two steps.

    Objects are what task, store, model and loss hold in attributes, containers and plain objects;
    a snapshot that is only compared needs none. Tensors are by default all that a step changes in
    place. Their copies are on the device if it has much free memory, since that is faster, else on
    the host. Restoring needs no run: it may be over and released by then.
    """

    def __init__(
        self,
        run: EngineRun,
        tensors: Mapping[str, Tensor] | None = None,
        *,
        has_objects: bool = True,
        is_on_host: bool = False,
    ) -> None:
        self._restorers: list[Restore] = []
        for _, value in walk_run_objects(run) if has_objects else ():
            self.keep(value, is_plain=value is run.task)
        self._tensors = find_state_tensors(run) if tensors is None else dict(tensors)
        is_on_host = is_on_host or not _has_room(self._tensors, run.device)
        place = torch.device("cpu") if is_on_host else run.device
        self._copies = {
            name: tensor.detach().to(place, copy=True) for name, tensor in self._tensors.items()
        }
        self._generators = generator_states()
        is_cuda = run.device.type == "cuda"
        self._device_random = torch.cuda.get_rng_state(run.device) if is_cuda else None

    def keep(self, value: Value, *, is_plain: bool = False) -> None:
        """Restore the contents of a value too, but not those of the values in it.

        They are those of a container, array, generator, module or plain object; with ``is_plain``
        the attributes of any object.
        """
        restore = _find_restore(value, is_plain=is_plain)
        if restore is not None:
            self._restorers.append(restore)

    def keep_state(self, owner: Any) -> None:  # noqa: ANN401 - anything with the two methods
        """Restore an object through its ``state_dict`` too, if it has one."""
        if hasattr(owner, "state_dict") and hasattr(owner, "load_state_dict"):
            self.add(partial(owner.load_state_dict, copy.deepcopy(owner.state_dict())))

    def add(self, restore: Restore) -> None:
        """Call a function whenever this is restored, before tensors and generators are."""
        self._restorers.append(restore)

    def restore(self) -> None:
        """Restore everything in place; what was added to objects since is removed."""
        for restore in self._restorers:
            restore()
        with torch.no_grad():
            for name, tensor in self._tensors.items():
                tensor.detach().copy_(self._copies[name])
        restore_generators(self._generators)

    def first_difference(self, other: Snapshot) -> str:
        """The name of a tensor whose bits differ in the other snapshot; empty if none."""
        for name, tensor in self._copies.items():
            if not torch.equal(_bits(tensor), _bits(other._copies[name].to(tensor.device))):
                return name
        if self._device_random is not None and other._device_random is not None:
            is_same = torch.equal(self._device_random, other._device_random)
            return "" if is_same else "the random generator of the device"
        return ""

    def gap(self, other: Snapshot, since: Snapshot, prefix: str) -> float:
        """The distance to another snapshot, relative to the distance from the start of both.

        Only tensors whose names start with ``prefix`` count.
        """
        gap = way = 0.0
        for name, start in since._copies.items():
            if start.is_floating_point() and name.startswith(prefix):
                here = self._copies[name].double()
                there, start = (one.to(here) for one in (other._copies[name], start))
                gap += float((here - there).square().sum())
                way += float((here - start).square().sum())
        return float((gap / way) ** 0.5) if way else (0.0 if gap == 0 else float("inf"))


def take_whole_snapshot(run: EngineRun) -> Snapshot:
    """A snapshot on the host that also has gradients, optimizer, hooks and the training data."""
    snapshot = Snapshot(run, is_on_host=True)
    for parameter in run.model.parameters():
        snapshot.add(partial(setattr, parameter, "grad", parameter.grad))
        snapshot.add(partial(parameter.requires_grad_, parameter.requires_grad))
    if run.optimizer is not None:
        groups: list[dict[str, Any]] = run.optimizer.param_groups
        state: dict[Any, Any] = run.optimizer.state  # torch says tensors, but takes other keys, too
        for value in (groups, *groups, state, *state.values()):
            snapshot.keep(value)
    loader: Any = run.feed.loader
    for owner in (*run.events.hooks, *run.parts, find_stateful_owner(loader)):
        snapshot.keep_state(owner)
    for owner in (loader, getattr(loader, "sampler", None)):
        snapshot.keep(getattr(owner, "generator", None))
    return snapshot


def _find_restore(value: Value, *, is_plain: bool) -> Restore | None:
    """What restores the contents of a value; None if they cannot change or are unknown."""
    state = read_generator_state(value)
    if state is not None:
        return partial(set_generator_state, value, state)
    if isinstance(value, np.ndarray):
        is_kept = value.nbytes <= MAX_ARRAY_BYTES and value.flags.writeable
        return partial(np.copyto, value, value.copy()) if is_kept else None
    if isinstance(value, dict | list | deque | set):
        return _container_restore(value)
    if is_plain or isinstance(value, nn.Module) or is_plain_object(value):
        return _attributes_restore(value)
    return None


def _container_restore(value: Value) -> Restore:
    items = list(value.items()) if isinstance(value, dict) else list(value)
    before = _flatten(value)

    def restore() -> None:
        now = _flatten(value)
        # Left alone if unchanged: another thread may be reading it.
        if len(now) == len(before) and all(map(is_, now, before)):
            return
        value.clear()
        if isinstance(value, dict):
            for key, item in items:
                value[key] = item
        elif isinstance(value, set):
            value.update(items)
        else:
            value.extend(items)

    return restore


def _flatten(value: Value) -> list[Value]:
    return [*value, *value.values()] if isinstance(value, dict) else list(value)


def _attributes_restore(value: object) -> Restore:
    before = read_own_attributes(value)

    def restore() -> None:
        now = read_own_attributes(value)
        for name in now.keys() - before.keys():
            object.__delattr__(value, name)
        for name, item in before.items():
            if now.get(name, _MISSING) is not item:
                object.__setattr__(value, name, item)

    return restore


def _has_room(tensors: Mapping[str, Tensor], device: torch.device) -> bool:
    """Whether a copy of all tensors would take a small part of the free memory."""
    if device.type != "cuda":
        return False
    free, _ = torch.cuda.mem_get_info(device)
    return sum(tensor.nbytes for tensor in tensors.values()) < free / _FREE_MEMORY_FACTOR


def _bits(tensor: Tensor) -> Tensor:
    """A tensor as integers, so that NaN equals itself."""
    flat = torch.view_as_real(tensor) if tensor.is_complex() else tensor
    return flat.contiguous().reshape(-1).view(_INTEGERS[flat.element_size()])


@contextmanager
def working_on_split(run: EngineRun, split: str) -> Iterator[None]:
    """Switch the run to another split, with its own random numbers, for a block."""
    before = run.split, run.loader_name, run.batch_index
    with seeded(derive_seed(run.seed, "eval", split)):
        run.split = split
        try:
            yield
        finally:
            run.events.has_run_user_code = True  # code of the task ran
            run.split, run.loader_name, run.batch_index = before


@contextmanager
def keeping_training_modes(*parts: nn.Module | None) -> Iterator[None]:
    """Restore the training mode of each module at the end of a block."""
    roots = [part for part in parts if part is not None]
    modes = [(module, module.training) for root in roots for module in root.modules()]
    try:
        yield
    finally:
        for module, mode in modes:
            module.training = mode
