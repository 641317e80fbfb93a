"""Rebuilds Python values and tensors from the tagged JSON of a checkpoint."""

from __future__ import annotations

import base64
import struct
from collections import Counter, OrderedDict, defaultdict, deque
from typing import TYPE_CHECKING, Any, final

import numpy as np
import torch

from epochal.checkpoint.tensor_storage import TensorRestorer, get_dtype
from epochal.errors import CheckpointError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from torch import Tensor

DEFAULT_FACTORIES: dict[str, Callable[[], object]] = {
    kind.__name__: kind for kind in (int, float, str, list, dict, set, tuple, bool)
}
"""The allowed factories of a defaultdict, by name."""


@final
class Deserializer:
    """Rebuilds trees from tagged JSON and tensors."""

    def __init__(self, tensors: Mapping[str, Tensor]) -> None:
        self.restorer = TensorRestorer(tensors)

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
            raise CheckpointError(f"state: unknown tag {tag!r}, made by a newer version")
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


def _counter(deserializer: Deserializer, plain: list[Any]) -> object:
    counter: Counter[object] = Counter()
    counter.update(dict(deserializer.pairs(plain)))
    return counter


def _float(_: Deserializer, plain: str) -> float:
    (value,) = struct.unpack(">d", bytes.fromhex(plain))
    return float(value)


def _scalar(_: Deserializer, plain: list[str]) -> object:
    return np.frombuffer(base64.b64decode(plain[1]), dtype=np.dtype(plain[0]))[0]


_DECODERS: dict[str, Callable[[Deserializer, Any], object]] = {
    "$int": lambda _, plain: int(plain, 16),
    "$float": _float,
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
    "$counter": _counter,
    "$defaultdict": _default,
    "$scalar": _scalar,
    "$tensor": lambda self, plain: self.restorer.get(plain),
    "$array": Deserializer.array,
}
_MULTI_FIELD_TAGS = ("$tensor", "$array")  # tags with more than one entry
