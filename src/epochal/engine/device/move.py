"""Moves batches and modules to the run's device and dtype."""

from __future__ import annotations

import copy
import dataclasses
import inspect
import re
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import lru_cache
from itertools import chain
from typing import TYPE_CHECKING, Any, final
from weakref import WeakValueDictionary

import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy
from torch.nn.utils.rnn import PackedSequence

from epochal.errors import ConfigError, Problem, TaskError, suggest

if TYPE_CHECKING:
    from epochal.engine.interfaces.task import Batch

_FLOATS = {"double": "float64", "float": "float32", "half": "float16"}  # the names of C++
_FLOAT_NAMES = re.compile(r"\b(double|float|half|bfloat16|float64|float32|float16)\b")
_MISMATCH = re.compile(r"dtype|scalar type|input type")

MoveBatch = Callable[["Batch"], "Batch"]

DTYPES = {"float32": torch.float32, "float64": torch.float64}


def parse_dtype(name: str | torch.dtype | None) -> torch.dtype | None:
    """The dtype of a config; None changes no tensor."""
    if name is None or name in DTYPES.values():
        return name if isinstance(name, torch.dtype) else None
    if name not in DTYPES:
        text = str(name).removeprefix("torch.")
        hint = suggest(text, DTYPES)
        if text in ("float16", "half", "fp16", "bfloat16", "bf16"):
            hint = "half precision is engine.precision: bf16 or fp16; the weights stay float32"
        raise ConfigError(Problem("model.dtype", f"unknown dtype {text!r}", hint=hint))
    return DTYPES[str(name)]


def move_module(
    module: nn.Module,
    device: torch.device,
    dtype: torch.dtype | None,
    *,
    channels_last: bool = False,
) -> nn.Module:
    """The module on the device, its floating-point tensors in the dtype; complex ones stay."""
    module = module.to(device)
    if channels_last:
        # Not `to`, which refuses a module that also has tensors of five dimensions.
        for tensor in chain(module.parameters(), module.buffers()):
            if not is_lazy(tensor) and tensor.ndim == 4:
                tensor.data = tensor.data.contiguous(memory_format=torch.channels_last)
    if dtype is None:
        return module
    # Not `to`, which would drop the imaginary part of complex tensors.
    return module.double() if dtype == torch.float64 else module.float()


def choose_mover(
    device: torch.device, dtype: torch.dtype | None, *, channels_last: bool = False
) -> MoveBatch:
    """A function that moves a batch to the device and dtype; on the CPU it does almost nothing."""
    if device.type == "cpu" and dtype is None and not channels_last:
        return keep_batch
    return BatchMover(device, dtype, channels_last=channels_last)


_CPU = torch.device("cpu")
PLAIN_BATCHES = frozenset({Tensor, dict, list, tuple})
"""Types of batches that are not moved on the CPU."""


def keep_batch(batch: Batch) -> Batch:
    """The batch as it is; the method ``to`` of a user's class is called, as on any device."""
    if type(batch) in PLAIN_BATCHES or not hasattr(batch, "to"):
        return batch
    return batch.to(_CPU)


@final
@dataclasses.dataclass(frozen=True, slots=True)
class BatchMover:
    """Moves all tensors in nested containers, and casts those of floats.

    Args:
        device: Where tensors go.
        dtype: Of floating-point tensors; None does not cast.
        is_detached: Detach tensors from the autograd graph.
        channels_last: Use this memory format for 4-D tensors of floats.
        is_pinned: Copy CPU tensors through page-locked memory, so that the host does not wait.
        prefetched: Objects that were moved ahead of their step, by id; a pinning mover adds them,
            and the other movers that share this leave them as they are.
    """

    device: torch.device
    dtype: torch.dtype | None
    is_detached: bool = False
    channels_last: bool = False
    is_pinned: bool = False
    prefetched: WeakValueDictionary[int, Any] = dataclasses.field(
        default_factory=WeakValueDictionary, repr=False, compare=False
    )

    def __call__(self, value: Batch) -> Batch:
        """The same containers with moved tensors; other values are unchanged."""
        if isinstance(value, Tensor):
            return self._move_tensor(value)
        if hasattr(value, "to"):
            return self._move_object(value)
        if isinstance(value, list | tuple):
            moved = [self(item) for item in value]
            return type(value)(*moved) if hasattr(value, "_fields") else type(value)(moved)
        if isinstance(value, Mapping):
            return refill_mapping(value, {key: self(item) for key, item in value.items()})
        return self._move_fields(value) if dataclasses.is_dataclass(value) else value

    def _move_tensor(self, tensor: Tensor) -> Tensor:
        tensor = tensor.detach() if self.is_detached else tensor
        dtype = self.dtype if tensor.is_floating_point() else None
        if self.is_pinned and _can_be_pinned(tensor):
            # Moved, then cast: casting first would leave the page-locked memory.
            tensor = tensor.pin_memory().to(self.device, non_blocking=True)
        moved = tensor.to(self.device, dtype, non_blocking=True)
        if self.channels_last and moved.ndim == 4 and moved.is_floating_point():
            return moved.contiguous(memory_format=torch.channels_last)
        return moved

    def _move_object(self, value: Batch) -> Batch:
        if not self.is_pinned:
            is_moved = self.prefetched.get(id(value)) is value
            return value if is_moved else self._call_to(value)
        moved = self._call_to(value.pin_memory() if hasattr(value, "pin_memory") else value)
        with suppress(TypeError):  # a class without weak references is moved again
            self.prefetched[id(moved)] = moved
        return moved

    def _call_to(self, value: Batch) -> Batch:
        is_packed = isinstance(value, PackedSequence)
        if is_packed:
            return value.to(self.device, self.dtype if value.data.is_floating_point() else None)
        moved = value.to(self.device)
        if self.dtype is not None and hasattr(moved, "to_dtype"):
            return moved.to_dtype(self.dtype)
        if self.dtype is None:
            return moved
        if _float_dtypes(moved) - {self.dtype} and _takes_dtype(getattr(type(moved), "to", None)):
            moved = moved.to(self.device, dtype=self.dtype)
        # Most objects hold float32 alone; one that cannot be cast may hold more than inputs.
        return _require_dtype(moved, self.dtype) if self.dtype == torch.float64 else moved

    def _move_fields(self, value: Batch) -> Batch:
        moved = copy.copy(value)
        for field in dataclasses.fields(value):
            object.__setattr__(moved, field.name, self(getattr(value, field.name)))
        return moved


def _can_be_pinned(tensor: Tensor) -> bool:
    """Whether a CPU tensor is dense."""
    is_plain = tensor.device.type == "cpu" and tensor.layout == torch.strided
    return is_plain and (
        tensor.is_contiguous() or tensor.is_contiguous(memory_format=torch.channels_last)
    )


@lru_cache(maxsize=64)
def _takes_dtype(to: Callable[..., object] | None) -> bool:
    """Whether the method ``to`` of a class has a parameter ``dtype``."""
    try:
        return to is not None and "dtype" in inspect.signature(to).parameters
    except (TypeError, ValueError):
        return False


def _require_dtype(batch: Batch, dtype: torch.dtype) -> Batch:
    """The batch; raises an error if it holds floats of another dtype."""
    for other in _float_dtypes(batch) - {dtype}:
        kind = type(batch).__name__
        raise TaskError(
            f"model.dtype: a batch of type {kind} holds {other}, which should be {dtype}\n"
            f"  write def to_dtype(self, dtype) in {kind}, which returns it with its floats cast"
        )
    return batch


def explain_dtype_mismatch(model: nn.Module, error: BaseException) -> None:
    """Add a note to torch's error about two different dtypes."""
    text = str(error).lower()
    if not isinstance(error, RuntimeError | ValueError) or not _MISMATCH.search(text):
        return
    found = {_FLOATS.get(name, name) for name in _FLOAT_NAMES.findall(text)}
    own = {str(one.dtype).removeprefix("torch.") for one in model.parameters()}
    others = found - own
    if len(own) == len(others) == 1 and len(found) == 2:
        (expected,), (got,) = own, others
        error.add_note(
            f"the model is {expected} and got {got}, probably from the batch: make {expected} "
            "tensors in the dataset. Batches are cast to model.dtype only if the config "
            "describes the model, and objects only by their own to() or to_dtype()"
        )


def _float_dtypes(batch: Batch) -> set[torch.dtype]:
    """The dtypes of the floating-point tensors in an object."""
    items = _items(batch) or getattr(batch, "__dict__", {}).values()
    return {item.dtype for item in items if isinstance(item, Tensor) and item.is_floating_point()}


def batch_size(batch: Batch) -> int | None:
    """The first dimension of the first tensor in a batch, if there is one."""
    if isinstance(batch, Tensor):
        return batch.shape[0] if batch.dim() else None
    items = _items(batch)
    for item in items:
        size = batch_size(item)
        if size is not None:
            return size
    return None


def _items(batch: Batch) -> list[Batch]:
    if isinstance(batch, list | tuple):
        return list(batch)
    if isinstance(batch, Mapping):
        return list(batch.values())
    if dataclasses.is_dataclass(batch) and not isinstance(batch, type):
        return [getattr(batch, field.name) for field in dataclasses.fields(batch)]
    return []


def refill_mapping(mapping: Mapping[str, Batch], moved: dict[str, Batch]) -> Batch:
    """A mapping of the same class with other values; a dict if that is not possible."""
    if type(mapping) is dict:
        return moved
    try:
        changed = copy.copy(mapping)
        changed.update(moved)  # type: ignore[attr-defined]  # most mappings are mutable
    except (AttributeError, TypeError):
        return moved
    return changed
