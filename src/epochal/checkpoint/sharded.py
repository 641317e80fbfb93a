"""Tensors of which every process writes its own part, in files of one checkpoint.

The name of a part says where it begins: ``model/weights/head.weight@128,0``. So a tensor can be put
together, whole or in other parts, without knowing how many processes there were.
"""

from __future__ import annotations

import math
from collections import defaultdict
from typing import TYPE_CHECKING, Any, NamedTuple, final

import torch
from torch import Tensor

from epochal.distributed.sharded_tensor import (
    get_own_part,
    get_own_place,
    has_first_copy,
    is_sharded,
    replicate,
    slices_of,
    wrap_part,
)
from epochal.errors import CheckpointError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    Index = tuple[slice, ...]

_PLACE = "@"


class TensorPart(NamedTuple):
    """One part of a tensor in a checkpoint."""

    start: tuple[int, ...]
    shape: tuple[int, ...]
    read: Callable[[Index], Tensor]
    """Returns a region of the part."""


@final
class ShardedValue:
    """A tensor of a checkpoint that is saved in parts; it is read only where it is needed."""

    def __init__(
        self, name: str, shape: tuple[int, ...], dtype: torch.dtype, parts: Iterable[TensorPart]
    ) -> None:
        self.name, self.shape, self.dtype = name, torch.Size(shape), dtype
        # Several processes may have written the same part.
        self._parts = {part.start: part for part in parts if math.prod(part.shape)}

    def read(self, start: tuple[int, ...], shape: tuple[int, ...]) -> Tensor:
        """A region of the tensor, on the host; CheckpointError if a part of it is missing."""
        region = torch.empty(shape, dtype=self.dtype)
        found = 0
        for part in self._parts.values():
            low = [max(a, b) for a, b in zip(start, part.start, strict=True)]
            ends = zip(start, shape, part.start, part.shape, strict=True)
            high = [min(a + n, b + m) for a, n, b, m in ends]
            size = [max(0, b - a) for a, b in zip(low, high, strict=True)]
            if not math.prod(size):
                continue
            inner = [a - b for a, b in zip(low, part.start, strict=True)]
            outer = [a - b for a, b in zip(low, start, strict=True)]
            region[slices_of(outer, size)] = part.read(slices_of(inner, size))
            found += math.prod(size)
        if found != math.prod(shape):
            raise CheckpointError(f"checkpoint: a part of {self.name!r} is missing")
        return region

    def read_whole(self) -> Tensor:
        """The whole tensor, on the host."""
        return self.read((0,) * len(self.shape), tuple(self.shape))


def name_part(name: str, tensor: Tensor) -> str:
    """The name in the files of a checkpoint for the part that this process has."""
    start, _ = get_own_place(tensor)
    return f"{name}{_PLACE}{','.join(map(str, start))}"


def should_write(tensor: Tensor) -> bool:
    """Whether this process writes its part: no process of lower rank has the same part."""
    return bool(get_own_part(tensor).numel()) and has_first_copy(tensor)


def find_parts(stored: Mapping[str, Tensor | Any]) -> dict[str, list[TensorPart]]:
    """The parts of each tensor by name, from tensors or slices of safetensors files by name."""
    found: dict[str, list[TensorPart]] = defaultdict(list)
    for name, one in stored.items():
        whole, _, place = name.rpartition(_PLACE)
        shape = tuple(one.shape if isinstance(one, Tensor) else one.get_shape())
        start = tuple(int(number) for number in place.split(",") if number)
        found[whole].append(TensorPart(start, shape, one.__getitem__))
    return found


def fit_to(saved: Any, target: object, key: str = "") -> Any:  # noqa: ANN401 - a value of any tree
    """A saved value in the form of an existing one: whole, or the part of this process.

    Raises:
        CheckpointError: It is saved in parts and has another shape; ``key`` says what it is.
    """
    if not isinstance(saved, Tensor | ShardedValue):
        return saved
    if isinstance(target, Tensor) and is_sharded(target):
        if target.shape == saved.shape:
            return wrap_part(_read_place_of(saved, target).to(target.dtype), target)
        if isinstance(saved, ShardedValue):
            shapes = f"{tuple(saved.shape)} there, {tuple(target.shape)} here"
            raise CheckpointError(f"{key or saved.name}: its shape differs: {shapes}")
    return saved.read_whole() if isinstance(saved, ShardedValue) else saved


def fit_state(saved: Any, parameter: Tensor) -> Any:  # noqa: ANN401 - a value of any tree
    """A saved value of the optimizer's state of a parameter, divided as the parameter is."""
    if not isinstance(saved, Tensor | ShardedValue) or not is_sharded(parameter):
        return fit_to(saved, None)
    if saved.shape == parameter.shape:
        return wrap_part(_read_place_of(saved, parameter), parameter)
    whole = fit_to(saved, None)
    return replicate(whole, parameter) if whole.dim() else whole


def _read_place_of(saved: Tensor | ShardedValue, target: Tensor) -> Tensor:
    """The region of a saved tensor that is the part of this process in a sharded one."""
    start, shape = get_own_place(target)
    if isinstance(saved, ShardedValue):
        return saved.read(start, shape)
    return saved[slices_of(start, shape)]


def read_whole(tree: Any) -> Any:  # noqa: ANN401 - any tree
    """A tree with every tensor that is saved in parts put together; tied ones stay one tensor."""
    known: dict[str, Tensor] = {}

    def visit(value: Any) -> Any:  # noqa: ANN401 - same
        if isinstance(value, ShardedValue):
            if value.name not in known:
                known[value.name] = value.read_whole()
            return known[value.name]
        if type(value) is dict:
            return {key: visit(one) for key, one in value.items()}
        return type(value)(map(visit, value)) if type(value) in (list, tuple) else value

    return visit(tree)
