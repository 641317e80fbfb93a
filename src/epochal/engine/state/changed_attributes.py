"""Saves and restores attributes that task, model and loss change during a run."""

from __future__ import annotations

import copy
import logging
from collections import deque
from typing import TYPE_CHECKING, Any, final

import numpy as np
from torch import Tensor, nn

from epochal.checkpoint import serialize_tree
from epochal.engine.device.seeding import read_generator_state, set_generator_state
from epochal.engine.snapshot.run_objects import (
    MODULE_ATTRIBUTES,
    RUN_OWNED_SUFFIXES,
    fingerprint_value,
)
from epochal.engine.state.optimizer_state import restore_in_place
from epochal.errors import CheckpointError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from epochal.engine.run.engine_run import EngineRun

    State = dict[str, Any]  # a tree of plain data and tensors

logger = logging.getLogger(__name__)

MAX_ATTRIBUTE_BYTES = 2**20
"""Of one attribute; larger ones are results, such as outputs, and not saved."""


@final
class ChangedAttributes:
    """Attributes of a run's task and modules that changed since they were built.

    A count of batches, for example, is restored by a resume although its class has no
    ``state_dict``. Attributes that did not change come from the config.
    """

    def __init__(self, run: EngineRun) -> None:
        self._run = run
        self._reported: set[str] = set()
        self._first = {name: fingerprint_value(value) for name, _, _, value in self._all()}
        self._initial: State = {}
        if run.options.engine.on_nonfinite == "rollback":
            self._initial = {
                name: copy.deepcopy(value)
                for name, _, _, value in self._all()
                if not _has_tensors(value) and self._can_be_saved(name, value)
            }

    def collect(self) -> State:
        """Attributes that changed, and those that hold tensors or generators, by name."""
        found: State = {}
        for name, _, _, value in self._all():
            state = read_generator_state(value)
            if state is not None:
                found[name] = {"generator": state}
                continue
            may_have_changed = _has_tensors(value) or _may_change_in_place(value)
            may_have_changed |= fingerprint_value(value) != self._first.get(name, self)
            if may_have_changed and self._can_be_saved(name, value):
                found[name] = {"value": value}
        return found

    def restore_initial(self) -> None:
        """Give attributes their initial values; only with ``on_nonfinite: rollback``."""
        for name, owner, attribute, value in list(self._all()):
            if name in self._initial:
                if fingerprint_value(value) != self._first[name] or _may_change_in_place(value):
                    setattr(owner, attribute, copy.deepcopy(self._initial[name]))
            elif name not in self._first and self._can_be_saved(name, value):
                delattr(owner, attribute)

    def restore(self, state: State) -> None:
        """Give attributes the values of a checkpoint; tensors are restored in place."""
        present = {name: (owner, attribute) for name, owner, attribute, _ in self._all()}
        owners = dict(self._owners())
        for name, saved in state.items():
            prefix, _, attribute = name.rpartition(".")
            owner, attribute = present.get(name, (owners.get(prefix), attribute))
            if owner is None:
                continue
            value = getattr(owner, attribute, None)
            if "generator" in saved and value is not None:
                set_generator_state(value, saved["generator"])
            elif "value" in saved:
                setattr(owner, attribute, restore_in_place(value, saved["value"], self._run.device))

    def _can_be_saved(self, name: str, value: object) -> bool:
        try:
            tensors = serialize_tree(value, name).tensors
        except CheckpointError:
            what = f"is a {type(value).__name__}"
        else:
            size = sum(tensor.nbytes for tensor in tensors.values())
            if size <= MAX_ATTRIBUTE_BYTES:
                return True
            what = "is too large"
        if name not in self._reported:
            self._reported.add(name)
            logger.debug("%s %s: it is not saved in checkpoints", name, what)
        return False

    def _all(self) -> Iterator[tuple[str, object, str, object]]:
        for prefix, owner in self._owners():
            for attribute, value in list(vars(owner).items()):
                is_part = isinstance(value, nn.Module) or attribute in MODULE_ATTRIBUTES
                is_of_the_run = owner is self._run.task and attribute.endswith(RUN_OWNED_SUFFIXES)
                if not is_part and not is_of_the_run and not callable(value):
                    yield f"{prefix}.{attribute}", owner, attribute, value

    def _owners(self) -> Iterator[tuple[str, object]]:
        task = self._run.task
        own = getattr(task, "__dict__", {})
        # A state_dict of the task decides alone what is saved.
        if own and not hasattr(task, "state_dict"):
            yield "task", task
        for name, module in self._run.model.named_modules():
            yield f"model.{name}" if name else "model", module
        for name, module in () if self._run.loss is None else self._run.loss.terms.named_modules():
            yield f"loss.{name}" if name else "loss", module
        for attribute, part in list(own.items()):
            if isinstance(part, nn.Module):
                for name, module in part.named_modules():
                    yield f"task.{attribute}.{name}" if name else f"task.{attribute}", module


def _has_tensors(value: object) -> bool:
    if isinstance(value, Tensor):
        return True
    items = value.values() if isinstance(value, dict) else value
    is_container = isinstance(value, dict | list | tuple)
    return is_container and any(isinstance(item, Tensor) for item in items)  # type: ignore[attr-defined]  # a container


def _may_change_in_place(value: object) -> bool:
    """Whether a value may change in a way that ``fingerprint_value`` does not see."""
    if isinstance(value, np.ndarray):
        return value.nbytes <= MAX_ATTRIBUTE_BYTES
    return isinstance(value, deque | bytearray)
