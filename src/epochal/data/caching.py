"""Pipes that keep items: in memory, or in a file that is found again by what made it."""

from __future__ import annotations

import copy
import json
import logging
from pathlib import Path
from typing import TYPE_CHECKING, Any, final
from uuid import uuid4

import numpy as np
from typing_extensions import override

from epochal.data.cache_key import cache_key
from epochal.data.pipe import Item, Pass, Pipe
from epochal.durable.atomic import staged_dir
from epochal.errors import DataError

if TYPE_CHECKING:
    from collections.abc import Iterator

logger = logging.getLogger(__name__)

_ONCE = Pass()  # kept items must not depend on the epoch that first needed them


@final
class Cache(Pipe):
    """Items that are read once and kept, in memory or on disk.

    What comes before it is the same in every epoch, also if it draws random numbers.

    Args:
        path: A folder for files; null keeps items in the memory of each worker. A file is used
            again as long as the pipes before it, their code and their files are the same.
    """

    needs_index = True
    keeps_items = True

    def __init__(self, path: str | None = None) -> None:
        self.path = path
        self._memory: dict[int, Item] = {}
        self._file: _CacheFile | None = None

    @override
    def prepare(self) -> None:
        if self.path is not None:
            folder = Path(self.path).expanduser()
            self._file = _CacheFile(folder / f"cache-{cache_key(self.parent)}")
            if not self._file.folder.exists():
                logger.info("data: writing the cache %s", self._file.folder)
                self._file.write(self.parent.iterate(_ONCE))

    @override
    def count(self, one_pass: Pass) -> int | None:
        return self.parent.count(_ONCE)

    @override
    def read(self, index: int, one_pass: Pass) -> Item:
        if self._file is not None:
            return self._file.read(index)
        if index not in self._memory:
            self._memory[index] = self.parent.reader(_ONCE)(index)
        return copy.deepcopy(self._memory[index])  # a pipe may change what it gets

    @override
    def __getstate__(self) -> dict[str, Any]:
        return super().__getstate__() | {"_memory": {}}


@final
class Materialise(Pipe):
    """All items of a stream, read once into memory; from then on they have an index.

    What comes before it is the same in every epoch, also if it draws random numbers.
    """

    gives = "indexed"
    keeps_items = True
    _items: list[Item] | None = None

    def _all(self) -> list[Item]:
        if self._items is None:
            self._items = list(self.parent.iterate(_ONCE))
        return self._items

    @override
    def prepare(self) -> None:
        self._all()

    @override
    def count(self, one_pass: Pass) -> int:
        return len(self._all())

    @override
    def read(self, index: int, one_pass: Pass) -> Item:
        return copy.deepcopy(self._all()[index])  # a pipe may change what it gets


@final
class _CacheFile:
    """A folder with all items in one file, and the offsets where they end."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._data: np.ndarray[Any, Any] | None = None
        self._ends: np.ndarray[Any, Any] | None = None

    def write(self, items: Iterator[Item]) -> None:
        self.folder.parent.mkdir(parents=True, exist_ok=True)
        with staged_dir(self.folder, uuid4().hex[:8]) as staging:
            ends = [0]
            with (staging.path / "items.bin").open("wb") as file:
                for item in items:
                    ends.append(ends[-1] + file.write(encode_item(item)))
            np.save(staging.path / "ends.npy", np.asarray(ends, dtype=np.int64))

    def read(self, index: int) -> Item:
        if self._data is None or self._ends is None:
            self._ends = np.load(self.folder / "ends.npy")
            self._data = np.memmap(self.folder / "items.bin", dtype=np.uint8, mode="r")
        first, end = self._ends[index], self._ends[index + 1]
        return decode_item(self._data[first:end].tobytes())

    @override
    def __getstate__(self) -> dict[str, Any]:
        return {"folder": self.folder, "_data": None, "_ends": None}


def encode_item(item: Item) -> bytes:
    """Plain values and arrays as bytes; nothing that is read back can execute code.

    Raises:
        DataError: The item holds something else.
    """
    blobs: list[bytes] = []

    def add(data: bytes) -> list[int]:
        blobs.append(data)
        return [sum(map(len, blobs[:-1])), len(data)]

    def encode(value: Any) -> Any:  # noqa: ANN401 - of any type
        if isinstance(value, bool | int | float | str | None) and type(value).__module__ != "numpy":
            return value
        if isinstance(value, dict) and all(isinstance(key, str) for key in value):
            return {"dict": {key: encode(one) for key, one in value.items()}}
        if type(value) in (list, tuple):
            return {type(value).__name__: [encode(one) for one in value]}
        if isinstance(value, bytes):
            return {"bytes": add(value)}
        if isinstance(value, np.ndarray | np.generic) and not value.dtype.hasobject:
            return {"array": [*add(value.tobytes()), value.dtype.str, list(value.shape)]}
        raise DataError(
            f"cache: cannot keep a {type(value).__qualname__} in a file\n"
            "  cache plain values and numpy arrays, and make other objects after the cache"
        )

    head = json.dumps(encode(item)).encode()
    return len(head).to_bytes(4, "little") + head + b"".join(blobs)


def decode_item(data: bytes) -> Item:
    """What ``encode_item`` was given."""
    first = 4 + int.from_bytes(data[:4], "little")

    def decode(value: Any) -> Any:  # noqa: ANN401 - of any type
        if not isinstance(value, dict):
            return value
        ((kind, inner),) = value.items()
        if kind == "dict":
            return {key: decode(one) for key, one in inner.items()}
        if kind in ("list", "tuple"):
            return {"list": list, "tuple": tuple}[kind](decode(one) for one in inner)
        start, size = inner[0] + first, inner[1]
        if kind == "bytes":
            return data[start : start + size]
        array = np.frombuffer(data[start : start + size], dtype=np.dtype(inner[2]))
        return array.reshape(inner[3]).copy() if inner[3] else array[0]

    return decode(json.loads(data[4:first]))
