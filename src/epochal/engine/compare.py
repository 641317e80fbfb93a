"""Whether two samples are the same, bit for bit, as far as that can be told."""

from __future__ import annotations

import dataclasses
import struct
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

if TYPE_CHECKING:
    from collections.abc import Sequence


def are_same(one: Any, other: Any) -> bool:  # noqa: ANN401 - samples are of any kind
    """Whether two nests of values are equal; objects of unknown kinds count as equal."""
    if type(one) is not type(other):
        return False
    if isinstance(one, Tensor):
        return _are_tensors_same(one, other)
    if isinstance(one, np.ndarray | np.generic):
        return _are_arrays_same(np.asarray(one), np.asarray(other))
    items = _items(one)
    return _are_values_same(one, other) if items is None else _are_all_same(items, _items(other))


def _items(value: Any) -> list[Any] | None:  # noqa: ANN401 - same
    """What a container holds, its keys included; None for what is none."""
    if isinstance(value, Mapping):
        return [list(value), list(value.values())]
    if isinstance(value, list | tuple):
        return list(value)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return [getattr(value, field.name) for field in dataclasses.fields(value)]
    return None


def _are_all_same(one: Sequence[Any], other: Sequence[Any] | None) -> bool:
    return other is not None and len(one) == len(other) and all(map(are_same, one, other))


def _are_tensors_same(one: Tensor, other: Tensor) -> bool:
    if (one.dtype, one.shape, one.layout) != (other.dtype, other.shape, other.layout):
        return False
    if one.layout != torch.strided:
        return True
    return _bits(one).equal(_bits(other))


def _bits(tensor: Tensor) -> Tensor:
    """So that NaN equals itself."""
    return tensor.detach().resolve_conj().resolve_neg().reshape(-1).contiguous().view(torch.uint8)


def _are_arrays_same(one: np.ndarray[Any, Any], other: np.ndarray[Any, Any]) -> bool:
    if (one.dtype, one.shape) != (other.dtype, other.shape):
        return False
    if one.dtype.hasobject:
        return _are_all_same(one.ravel().tolist(), other.ravel().tolist())
    return one.tobytes() == other.tobytes()


def _are_values_same(one: object, other: object) -> bool:
    if isinstance(one, float) and isinstance(other, float):
        return struct.pack("d", one) == struct.pack("d", other)
    if isinstance(one, bool | int | str | bytes | complex | None):
        return one == other
    return True
