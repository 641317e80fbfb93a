"""Splits a batch into its tensors, in a fixed order, and a key that describes the rest."""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Hashable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from torch import Size, Tensor

if TYPE_CHECKING:
    from collections.abc import Callable

    from epochal.engine.interfaces.task import Batch

    LayoutKey = Any  # nested tuples, as ``flatten_tensors`` returns them

_CONSTANTS = (type(None), bool, int, float, str, bytes)


class UnknownLayoutError(Exception):
    """A batch holds an object whose tensors cannot be found; the message names its type."""


def flatten_tensors(value: Batch, tensors: list[Tensor]) -> Hashable:
    """Append the tensors of a batch to a list; batches with equal keys differ only in tensors."""
    kind = type(value)
    if isinstance(value, Tensor):
        tensors.append(value)
        return value.shape, value.dtype, value.requires_grad
    if kind is dict:
        return dict, tuple([(name, flatten_tensors(item, tensors)) for name, item in value.items()])
    if kind is list or kind is tuple:
        return kind, tuple([flatten_tensors(item, tensors) for item in value])
    if isinstance(value, _CONSTANTS):
        return kind, value
    parts = _parts(value)
    return kind, tuple([(name, flatten_tensors(item, tensors)) for name, item in parts.items()])


def unflatten_tensors(value: Batch, tensors: Iterator[Tensor]) -> Batch:
    """The same batch with other tensors, in the order of ``flatten_tensors``."""
    if isinstance(value, Tensor):
        return next(tensors)
    if isinstance(value, _CONSTANTS):
        return value
    if isinstance(value, list | tuple):
        items = [unflatten_tensors(item, tensors) for item in value]
        return type(value)(*items) if hasattr(value, "_fields") else type(value)(items)
    return _with_parts(
        value, {name: unflatten_tensors(item, tensors) for name, item in _parts(value).items()}
    )


def map_tensors(value: Batch, make: Callable[[Tensor], Tensor]) -> tuple[Batch, list[Tensor]]:
    """A copy of a batch with ``make`` applied to its tensors, and those tensors."""
    tensors: list[Tensor] = []
    flatten_tensors(value, tensors)
    made = [make(tensor) for tensor in tensors]
    return unflatten_tensors(value, iter(made)), made


def copy_batch(value: Batch) -> Batch:
    """A copy of a batch that shares no tensor with it."""
    return map_tensors(value, _copy_tensor)[0]


def _copy_tensor(tensor: Tensor) -> Tensor:
    return tensor.detach().clone().requires_grad_(tensor.requires_grad)


def list_tensors(value: Batch) -> list[Tensor]:
    """The tensors of a batch, in the order of ``flatten_tensors``."""
    tensors: list[Tensor] = []
    flatten_tensors(value, tensors)
    return tensors


def find_changed_constant(first: LayoutKey, second: LayoutKey, path: str = "batch") -> str:
    """The path of the first constant in which two keys differ; empty if only tensors do."""
    if first == second or isinstance(first[0], Size) or isinstance(second[0], Size):
        return ""
    if first[0] is not second[0] or not isinstance(first[1], tuple):
        return path
    if len(first[1]) != len(second[1]):
        return ""
    is_named = first[0] not in (list, tuple)
    for index, (here, there) in enumerate(zip(first[1], second[1], strict=True)):
        name = repr(here[0]) if is_named else str(index)
        inner = (here[1], there[1]) if is_named else (here, there)
        found = find_changed_constant(*inner, f"{path}[{name}]")
        if found:
            return found
    return ""


def _parts(value: Batch) -> dict[Any, Batch]:
    """The items of a mapping, the elements of a named tuple, or the fields of a dataclass."""
    if isinstance(value, Mapping) and hasattr(value, "update"):
        return dict(value)
    if isinstance(value, list | tuple):
        return dict(enumerate(value))
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
    raise UnknownLayoutError(type(value).__qualname__)


def _with_parts(value: Batch, parts: dict[Any, Batch]) -> Batch:
    if type(value) is dict:
        return parts
    changed = copy.copy(value)
    if isinstance(value, Mapping):
        changed.update(parts)
        return changed
    for name, item in parts.items():
        object.__setattr__(changed, name, item)
    return changed
