"""Stores tensors that share memory once, and restores them so that they share it again."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, final

import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy

from epochal.errors import CheckpointError

if TYPE_CHECKING:
    from collections.abc import Mapping

SAFETENSORS_DTYPES = {
    torch.bool: "BOOL",
    torch.uint8: "U8",
    torch.int8: "I8",
    torch.float8_e4m3fn: "F8_E4M3",
    torch.float8_e5m2: "F8_E5M2",
    torch.uint16: "U16",
    torch.int16: "I16",
    torch.float16: "F16",
    torch.bfloat16: "BF16",
    torch.uint32: "U32",
    torch.int32: "I32",
    torch.float32: "F32",
    torch.uint64: "U64",
    torch.int64: "I64",
    torch.float64: "F64",
    torch.complex64: "C64",
}
"""The names of dtypes in safetensors files."""

_SAME_WIDTH = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
_REAL = {torch.complex32: torch.float16, torch.complex128: torch.float64}
_ALIGNMENT = 16  # bytes of the widest dtype


@final
@dataclass(slots=True)
class _TensorLeaf:
    """One tensor of a tree, its memory range, and its tag."""

    name: str
    tensor: Tensor
    tag: dict[str, Any] = field(default_factory=dict)

    @property
    def start(self) -> int:
        return self.tensor.data_ptr()

    @property
    def end(self) -> int:
        if self.tensor.is_contiguous():
            return self.start + self.tensor.nbytes
        pairs = zip(self.tensor.shape, self.tensor.stride(), strict=True)
        last = sum((size - 1) * stride for size, stride in pairs)
        return self.start + (last + 1) * self.tensor.element_size()

    @property
    def geometry(self) -> tuple[object, ...]:
        return (self.start, self.tensor.shape, self.tensor.stride(), self.tensor.dtype)


@final
class TensorCollector:
    """Collects the tensors of a tree; ``tensors`` completes their tags."""

    def __init__(self) -> None:
        self._leaves: list[_TensorLeaf] = []
        self._names: set[str] = set()

    def add(self, tensor: Tensor, path: tuple[str, ...]) -> dict[str, Any]:
        """The tag of ``tensor`` in the JSON tree."""
        if problem := _explain_unsupported(tensor):
            raise unsupported_value_error(path, *problem.split("\n  "))
        plain = tensor.detach().as_subclass(Tensor).resolve_conj().resolve_neg()
        leaf = _TensorLeaf(self._free_name("/".join(path)), plain)
        self._leaves.append(leaf)
        return leaf.tag

    def tensors(self) -> dict[str, Tensor]:
        """The tensors to store, by name; completes the tags."""
        found: dict[str, Tensor] = {}
        for group in _overlapping(self._leaves):
            first = group[0]
            is_one = len(group) == 1 or len({leaf.geometry for leaf in group}) == 1
            if is_one and not _overlaps_itself(first.tensor):
                found[first.name] = _describe_whole(group)
            else:
                found[first.name] = _describe_views(group)
        return found

    def _free_name(self, name: str) -> str:
        free, number = name, 1
        while free in self._names or free == "__metadata__":
            number += 1
            free = f"{name}~{number}"
        self._names.add(free)
        return free


def unsupported_value_error(path: tuple[str, ...], what: str, hint: str) -> CheckpointError:
    """The error for an unsupported value, with part and key."""
    key = ".".join(path[1:])
    where = f"{path[0]}: {key}" if key else path[0]
    return CheckpointError(f"{where}: cannot be kept in a checkpoint: {what}\n  {hint}")


def _explain_unsupported(tensor: Tensor) -> str:
    kind = type(tensor)
    if is_lazy(tensor):
        return "a tensor that has no size yet\n  run one batch through the model first"
    if tensor.layout != torch.strided:
        return f"a tensor of layout {tensor.layout}\n  convert it first, such as with .to_dense()"
    if tensor.is_quantized:
        return f"a quantised tensor ({tensor.dtype})\n  keep its int_repr(), scale and zero point"
    if tensor.is_meta:
        return "a tensor without values (meta)\n  move it to a device first"
    is_plain = kind in (Tensor, nn.Parameter, nn.Buffer)
    return "" if is_plain else f"a {kind.__module__}.{kind.__qualname__}\n  keep a plain tensor"


def _overlapping(leaves: list[_TensorLeaf]) -> list[list[_TensorLeaf]]:
    """Groups of leaves with overlapping memory, each in the order of the tree."""
    order = {id(leaf): number for number, leaf in enumerate(leaves)}
    groups: list[list[_TensorLeaf]] = []
    ends: dict[object, tuple[int, list[_TensorLeaf]]] = {}
    for leaf in sorted(leaves, key=lambda leaf: leaf.start if leaf.tensor.numel() else -1):
        if not leaf.tensor.numel():
            groups.append([leaf])
            continue
        memory = (leaf.tensor.device, leaf.tensor.untyped_storage().data_ptr())
        end, group = ends.get(memory, (-1, []))
        if leaf.start >= end:
            group = []
            groups.append(group)
        group.append(leaf)
        ends[memory] = (max(end, leaf.end), group)
    for group in groups:
        group.sort(key=lambda leaf: order[id(leaf)])
    return sorted(groups, key=lambda group: order[id(group[0])])


def _overlaps_itself(tensor: Tensor) -> bool:
    """Whether several indices may share an element, as after ``expand``."""
    if tensor.is_contiguous():
        return False
    reach = 0
    for stride, size in sorted(zip(tensor.stride(), tensor.shape, strict=True)):
        if size > 1:
            if stride <= reach:
                return tensor.numel() > 0
            reach += stride * (size - 1)
    return False


def _describe_whole(group: list[_TensorLeaf]) -> Tensor:
    tensor = group[0].tensor
    stored, note = _to_supported_dtype(tensor)
    if tensor.stride() != _row_major(tensor.shape):
        note["stride"] = list(tensor.stride())
    for leaf in group:
        leaf.tag.update({"$tensor": group[0].name, **note})
    return stored


def _row_major(shape: torch.Size) -> tuple[int, ...]:
    """The default strides of a new tensor."""
    strides: list[int] = []
    step = 1
    for size in reversed(shape):
        strides.append(step)
        step *= max(size, 1)
    return tuple(reversed(strides))


def _describe_views(group: list[_TensorLeaf]) -> Tensor:
    """One flat tensor, with each member of the group as a view of it."""
    tensor = group[0].tensor
    storage = tensor.untyped_storage()
    dtypes = {leaf.tensor.dtype for leaf in group}
    dtype = dtypes.pop() if len(dtypes) == 1 else torch.uint8
    width = dtype.itemsize
    unit = width if not dtypes else _ALIGNMENT
    low = (min(leaf.start for leaf in group) - storage.data_ptr()) // unit * unit
    high = max(leaf.end for leaf in group) - storage.data_ptr()
    flat = torch.empty(0, dtype=dtype, device=tensor.device)
    flat.set_(storage, low // width, ((high - low) // width,), (1,))
    stored, note = _to_supported_dtype(flat)
    for leaf in group:
        offset = leaf.start - storage.data_ptr() - low
        leaf.tag.update({"$tensor": group[0].name, **note})
        leaf.tag["shape"] = list(leaf.tensor.shape)
        leaf.tag["stride"] = list(leaf.tensor.stride())
        leaf.tag["offset"] = offset // leaf.tensor.element_size()
        if dtypes:
            leaf.tag["cast"] = dtype_name(leaf.tensor.dtype)
    return stored


def _to_supported_dtype(tensor: Tensor) -> tuple[Tensor, dict[str, Any]]:
    if tensor.dtype in SAFETENSORS_DTYPES:
        return tensor, {}
    if tensor.dtype in _REAL:
        return torch.view_as_real(tensor), {"dtype": dtype_name(tensor.dtype)}
    return tensor.view(_SAME_WIDTH[tensor.element_size()]), {"dtype": dtype_name(tensor.dtype)}


def dtype_name(dtype: torch.dtype) -> str:
    """The name of a torch dtype, as ``get_dtype`` takes it."""
    return str(dtype).removeprefix("torch.")


def get_dtype(name: str) -> torch.dtype:
    """The torch dtype with this name."""
    dtype = getattr(torch, name, None)
    if not isinstance(dtype, torch.dtype):
        raise CheckpointError(f"state: this torch has no element type {name!r}")
    return dtype


@final
class TensorRestorer:
    """Restores the tensors of tags; equal tags give the same tensor."""

    def __init__(self, tensors: Mapping[str, Tensor]) -> None:
        self._tensors = tensors
        self._made: dict[str, Tensor] = {}

    def get(self, tag: Mapping[str, Any]) -> Tensor:
        """The tensor of one tag, with its strides and shared memory."""
        key = repr(sorted(tag.items()))
        if key not in self._made:
            self._made[key] = self._make(tag)
        return self._made[key]

    def _make(self, tag: Mapping[str, Any]) -> Tensor:
        name = tag["$tensor"]
        if name not in self._tensors:
            raise CheckpointError(f"state: the tensor {name!r} is missing")
        tensor = self._tensors[name]
        if "dtype" in tag:
            dtype = get_dtype(tag["dtype"])
            tensor = torch.view_as_complex(tensor) if dtype in _REAL else tensor.view(dtype)
        if "offset" in tag:
            if "cast" in tag:
                dtype = get_dtype(tag["cast"])
                tensor = tensor[: len(tensor) // dtype.itemsize * dtype.itemsize].view(dtype)
            start = tensor.storage_offset() + tag["offset"]
            return tensor.as_strided(tag["shape"], tag["stride"], start)
        if "stride" in tag:
            shaped = torch.empty_strided(tensor.shape, tag["stride"], dtype=tensor.dtype)
            return shaped.copy_(tensor)
        return tensor


def get_tensor_bytes(tensor: Tensor) -> memoryview:
    """The values of a tensor in row-major order, as in safetensors files."""
    if not tensor.numel():
        return memoryview(b"")
    whole = tensor.detach().cpu().contiguous()
    flat = whole.as_strided((whole.numel(),), (1,))  # a single element may have any stride
    view: memoryview = flat.view(torch.uint8).numpy().data
    return view


def copy_to_host(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Copies of tensors in host memory; copies from a device are pinned and asynchronous."""
    copies = {}
    for name, tensor in tensors.items():
        copy = torch.empty_like(tensor, device="cpu", pin_memory=tensor.is_cuda)
        copies[name] = copy.copy_(tensor, non_blocking=tensor.is_cuda)
    for device in {tensor.device for tensor in tensors.values() if tensor.is_cuda}:
        torch.cuda.synchronize(device)
    return copies
