"""Splits state trees into tagged JSON and tensors, and rebuilds them."""

from __future__ import annotations

import base64
import math
import struct
from collections import Counter, OrderedDict, defaultdict, deque
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple, final

import numpy as np
import torch
from torch import Tensor

from epochal.checkpoint.sharded import ShardedValue, find_parts, name_part, should_write
from epochal.checkpoint.tensor_storage import (
    SAFETENSORS_DTYPES,
    TensorCollector,
    TensorRestorer,
    copy_to_host,
    dtype_name,
    get_dtype,
    unsupported_value_error,
)
from epochal.distributed.sharded_tensor import get_own_part, is_sharded
from epochal.errors import CheckpointError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

DEFAULT_FACTORIES: dict[str, Callable[[], object]] = {
    kind.__name__: kind for kind in (int, float, str, list, dict, set, tuple, bool)
}
"""The allowed factories of a defaultdict, by name."""


@final
class Deserializer:
    """Rebuilds trees from tagged JSON and tensors."""

    def __init__(self, tensors: Mapping[str, Tensor], shards: Mapping[str, Any]) -> None:
        self.restorer = TensorRestorer(tensors)
        self._parts = find_parts(shards)

    def sharded(self, plain: Mapping[str, Any]) -> ShardedValue:
        """The tensor of a tag that is saved in parts."""
        name, dtype = plain["$shards"], get_dtype(plain["dtype"])
        return ShardedValue(name, tuple(plain["shape"]), dtype, self._parts.get(name, ()))

    def visit(self, plain: Any) -> Any:  # noqa: ANN401 - any tree
        """The value of ``plain``."""
        if isinstance(plain, list):
            return [self.visit(child) for child in plain]
        if not isinstance(plain, dict):
            return plain
        tag = next((key for key in plain if key.startswith("$")), None)
        if tag is None:
            return {key: self.visit(child) for key, child in plain.items()}
        if tag not in _DECODERS:
            raise CheckpointError(f"state: unknown tag {tag!r}, written by a newer version")
        return _DECODERS[tag](self, plain if tag in _MULTI_FIELD_TAGS else plain[tag])

    def pairs(self, plain: list[list[Any]]) -> list[tuple[Any, Any]]:
        """Keys and values."""
        return [(self.visit(key), self.visit(value)) for key, value in plain]

    def array(self, plain: Mapping[str, Any]) -> object:
        """The numpy array of a tag."""
        data = self.restorer.get(plain["$array"]).numpy().tobytes()
        flat = np.frombuffer(bytearray(data), dtype=np.dtype(plain["dtype"]))
        array = flat.reshape(plain["shape"])
        return np.asfortranarray(array) if plain["fortran"] else array


def _default(deserializer: Deserializer, plain: list[Any]) -> object:
    name, pairs = plain
    factory = DEFAULT_FACTORIES[name] if name is not None else None
    return defaultdict(factory, deserializer.pairs(pairs))


def _decode_float(_: Deserializer, plain: str) -> float:
    (value,) = struct.unpack(">d", bytes.fromhex(plain))
    return float(value)


def _scalar(_: Deserializer, plain: list[str]) -> object:
    return np.frombuffer(base64.b64decode(plain[1]), dtype=np.dtype(plain[0]))[0]


_DECODERS: dict[str, Callable[[Deserializer, Any], object]] = {
    "$int": lambda _, plain: int(plain, 16),
    "$float": _decode_float,
    "$str": lambda _, plain: bytes.fromhex(plain).decode("utf-32-le", "surrogatepass"),
    "$complex": lambda self, plain: complex(*self.visit(plain)),
    "$bytes": lambda _, plain: base64.b64decode(plain),
    "$bytearray": lambda _, plain: bytearray(base64.b64decode(plain)),
    "$dtype": lambda _, plain: get_dtype(plain),
    "$device": lambda _, plain: torch.device(plain),
    "$tuple": lambda self, plain: tuple(self.visit(plain)),
    "$size": lambda self, plain: torch.Size(self.visit(plain)),
    "$set": lambda self, plain: set(self.visit(plain)),
    "$frozenset": lambda self, plain: frozenset(self.visit(plain)),
    "$deque": lambda self, plain: deque(self.visit(plain[1]), maxlen=plain[0]),
    "$dict": lambda self, plain: dict(self.pairs(plain)),
    "$ordered": lambda self, plain: OrderedDict(self.pairs(plain)),
    "$counter": lambda self, plain: Counter(dict(self.pairs(plain))),
    "$defaultdict": _default,
    "$scalar": _scalar,
    "$tensor": lambda self, plain: self.restorer.get(plain),
    "$array": Deserializer.array,
    "$shards": Deserializer.sharded,
}
_MULTI_FIELD_TAGS = ("$tensor", "$array", "$shards")  # tags with more than one entry


_SAFE_INTEGER = 2**53  # beyond it, other readers of JSON round
_ARRAY_KINDS = "biufcmMSU"


class SerializedState(NamedTuple):
    """A tree as JSON and tensors, as a checkpoint stores it."""

    plain: Any
    """JSON data; tagged mappings stand for other types and tensors."""

    tensors: dict[str, Tensor]
    """The tensors that tags name, detached, on their devices, one per piece of memory."""

    shards: Mapping[str, Tensor] = MappingProxyType({})
    """The parts that this process has of tensors that several have together, by name and place."""


def serialize_tree(tree: object, owner: str) -> SerializedState:
    """Split ``tree``; raises CheckpointError with ``owner`` and key for unsupported values.

    Tensors are not copied. Tensors that share memory are stored once, and share it again after
    ``deserialize_state``, with their strides.
    """
    split = serialize_state({owner: tree})
    return SerializedState(split.plain[owner], split.tensors, split.shards)


def serialize_state(state: Mapping[str, object]) -> SerializedState:
    """Split one tree per part; parts may share memory."""
    serializer = _Serializer()
    plain = {part: serializer.visit(tree, (part,)) for part, tree in state.items()}
    return SerializedState(plain, serializer.collector.tensors(), serializer.shards)


def snapshot_to_host(state: Mapping[str, object]) -> SerializedState:
    """Split one tree per part and copy its tensors to host memory."""
    split = serialize_state(state)
    return SerializedState(split.plain, copy_to_host(split.tensors), copy_to_host(split.shards))


def deserialize_state(
    plain: object, tensors: Mapping[str, Tensor], shards: Mapping[str, Any] | None = None
) -> Any:  # noqa: ANN401 - any tree
    """The original tree; its tensors are those in ``tensors``, or views of them.

    Tensors that several processes saved in parts become ``ShardedValue``; ``shards`` are the parts
    by name and place, as tensors or as slices of safetensors files.
    """
    try:
        return Deserializer(tensors, shards or {}).visit(plain)
    except CheckpointError:
        raise
    except Exception as error:  # a damaged file may hold anything
        raise CheckpointError(f"state: cannot be restored: {error!r}") from error


@final
class _Serializer:
    def __init__(self) -> None:
        self.collector = TensorCollector()
        self._open: set[int] = set()
        self.shards: dict[str, Tensor] = {}
        self._sharded_tags: dict[object, dict[str, Any]] = {}

    def visit(self, value: Any, path: tuple[str, ...]) -> Any:  # noqa: ANN401 - any tree
        """The JSON form of ``value`` at ``path``."""
        kind = type(value)
        if value is None or kind is bool:
            return value
        if kind in _SCALARS:
            return _SCALARS[kind](value)
        if is_sharded(value):
            return self._sharded(value, path)
        if isinstance(value, Tensor):
            return self.collector.add(value, path)
        if isinstance(value, np.generic | np.ndarray):
            return self._array(value, path)
        if kind in _CONTAINERS:
            return self._inside(value, path, kind)
        raise unsupported_value_error(
            path, f"a {_type_name(kind)}", "keep numbers, text, lists, mappings and tensors"
        )

    def _inside(self, value: Any, path: tuple[str, ...], kind: type) -> object:  # noqa: ANN401
        if id(value) in self._open or len(path) > 200:
            raise unsupported_value_error(
                path, "a structure that contains itself", "leave the inner reference out"
            )
        self._open.add(id(value))
        plain = _CONTAINERS[kind](self, value, path)
        self._open.discard(id(value))
        return plain

    def _sharded(self, value: Tensor, path: tuple[str, ...]) -> object:
        """The tag of a tensor of which this process has a part; tied ones have the same."""
        part = get_own_part(value)
        if value.dtype not in SAFETENSORS_DTYPES:
            raise unsupported_value_error(path, f"{value.dtype} in parts", "convert it first")
        memory = part.data_ptr() if part.numel() else object()
        key = (memory, tuple(value.shape), value.dtype)
        if key not in self._sharded_tags:
            name = "/".join(path)
            tag = {"$shards": name, "shape": list(value.shape), "dtype": dtype_name(value.dtype)}
            self._sharded_tags[key] = tag
            if should_write(value):
                self.shards[name_part(name, value)] = part
        return self._sharded_tags[key]

    def items(self, values: Iterable[object], path: tuple[str, ...]) -> list[object]:
        """The JSON forms of a sequence."""
        return [self.visit(child, (*path, str(i))) for i, child in enumerate(values)]

    def pairs(self, value: Mapping[object, object], path: tuple[str, ...]) -> list[object]:
        """The JSON forms of keys and values."""
        return [
            [self.visit(key, (*path, f"key {key!r}")), self.visit(child, (*path, str(key)))]
            for key, child in value.items()
        ]

    def mapping(self, value: Mapping[object, object], path: tuple[str, ...]) -> object:
        """A JSON object if all keys are plain strings, else pairs."""
        if all(type(key) is str and key[:1] != "$" and _is_text(key) for key in value):
            return {str(key): self.visit(child, (*path, str(key))) for key, child in value.items()}
        return {"$dict": self.pairs(value, path)}

    def unordered(self, value: Iterable[object], path: tuple[str, ...]) -> list[object]:
        """The items of a set, in an order that does not depend on hashes."""
        return sorted(self.items(value, path), key=repr)

    def default(self, value: defaultdict[object, object], path: tuple[str, ...]) -> object:
        """A defaultdict with a known factory."""
        factory = value.default_factory
        name = getattr(factory, "__name__", "") if factory is not None else None
        if name is not None and DEFAULT_FACTORIES.get(name) is not factory:
            raise unsupported_value_error(
                path, f"a defaultdict of {factory!r}", "make it a plain dict"
            )
        return {"$defaultdict": [name, self.pairs(value, path)]}

    def _array(self, value: Any, path: tuple[str, ...]) -> object:  # noqa: ANN401 - numpy's any
        if value.dtype.kind not in _ARRAY_KINDS:
            what = f"a numpy value of type {value.dtype}"
            raise unsupported_value_error(path, what, "keep numbers, or a list of plain values")
        if isinstance(value, np.generic):
            return {"$scalar": [value.dtype.str, base64.b64encode(value.tobytes()).decode()]}
        is_fortran = value.flags.f_contiguous and not value.flags.c_contiguous
        flat = np.ascontiguousarray(value).reshape(-1).view(np.uint8)
        stored = torch.from_numpy(flat.copy())
        shape = list(value.shape)
        return {
            "$array": self.collector.add(stored, path),
            "dtype": value.dtype.str,
            "shape": shape,
            "fortran": is_fortran,
        }


def _type_name(kind: type) -> str:
    return f"{kind.__module__}.{kind.__qualname__}".removeprefix("builtins.")


def _is_text(value: str) -> bool:
    return value.isascii() or not any("\ud800" <= char <= "\udfff" for char in value)


def _integer(value: int) -> object:
    return value if -_SAFE_INTEGER <= value <= _SAFE_INTEGER else {"$int": hex(value)}


def _float(value: float) -> object:
    # JSON has no NaN and no infinities; all bits of a NaN are stored.
    return value if math.isfinite(value) else {"$float": struct.pack(">d", value).hex()}


def _string(value: str) -> object:
    return value if _is_text(value) else {"$str": value.encode("utf-32-le", "surrogatepass").hex()}


_SCALARS: dict[type, Callable[[Any], object]] = {
    int: _integer,
    float: _float,
    str: _string,
    complex: lambda value: {"$complex": [_float(value.real), _float(value.imag)]},
    bytes: lambda value: {"$bytes": base64.b64encode(value).decode()},
    bytearray: lambda value: {"$bytearray": base64.b64encode(value).decode()},
    torch.dtype: lambda value: {"$dtype": str(value).removeprefix("torch.")},
    torch.device: lambda value: {"$device": str(value)},
}

_CONTAINERS: dict[type, Callable[[_Serializer, Any, tuple[str, ...]], object]] = {
    list: _Serializer.items,
    dict: _Serializer.mapping,
    tuple: lambda self, value, path: {"$tuple": self.items(value, path)},
    torch.Size: lambda self, value, path: {"$size": self.items(value, path)},
    set: lambda self, value, path: {"$set": self.unordered(value, path)},
    frozenset: lambda self, value, path: {"$frozenset": self.unordered(value, path)},
    deque: lambda self, value, path: {"$deque": [value.maxlen, self.items(value, path)]},
    OrderedDict: lambda self, value, path: {"$ordered": self.pairs(value, path)},
    Counter: lambda self, value, path: {"$counter": self.pairs(value, path)},
    defaultdict: _Serializer.default,
}
