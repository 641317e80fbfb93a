"""Pipes that keep items: in memory, or in a file that is found again by what made it."""

from __future__ import annotations

import hashlib
import io
import logging
import pickle
from pathlib import Path
from types import CodeType
from typing import TYPE_CHECKING, Any, final
from uuid import uuid4

import numpy as np
from typing_extensions import override

from epochal.data.pipe import Item, Pass, Pipe
from epochal.durable.atomic import staged_dir
from epochal.errors import DataError

if TYPE_CHECKING:
    from collections.abc import Iterator

_logger = logging.getLogger(__name__)

_ONCE = Pass()  # kept items must not depend on the epoch that first needed them
_LONGEST_PATH = 1000
_SAFE = {
    ("_codecs", "encode"),
    ("collections", "OrderedDict"),
    ("numpy", "dtype"),
    ("numpy", "ndarray"),
    ("numpy._core.multiarray", "_reconstruct"),
    ("numpy._core.multiarray", "scalar"),
    ("numpy._core.numeric", "_frombuffer"),
}


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
        self._memory: dict[int, bytes] = {}
        self._file: _CacheFile | None = None

    @override
    def prepare(self) -> None:
        if self.path is not None:
            folder = Path(self.path).expanduser()
            self._file = _CacheFile(folder / f"cache-{fingerprint(self.parent)}")
            if not self._file.folder.exists():
                _logger.info("data: writing the cache %s", self._file.folder)
                self._file.write(self.parent.iterate(_ONCE))

    @override
    def count(self, one_pass: Pass) -> int | None:
        return self.parent.count(_ONCE)

    @override
    def read(self, index: int, one_pass: Pass) -> Item:
        if self._file is not None:
            return self._file.read(index)
        kept = self._memory.get(index)
        if kept is None:
            (item,) = self.parent.read_seeded((index,), _ONCE)
            # As bytes, so that no pipe changes a kept item.
            kept = self._memory[index] = pickle.dumps(item, pickle.HIGHEST_PROTOCOL)
        return pickle.loads(kept)

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
    _items: list[bytes] | None = None

    def _all(self) -> list[bytes]:
        if self._items is None:
            items = self.parent.iterate(_ONCE)
            self._items = [pickle.dumps(item, pickle.HIGHEST_PROTOCOL) for item in items]
        return self._items

    @override
    def prepare(self) -> None:
        self._all()

    @override
    def count(self, one_pass: Pass) -> int:
        return len(self._all())

    @override
    def read(self, index: int, one_pass: Pass) -> Item:
        return pickle.loads(self._all()[index])


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
                    data = pickle.dumps(item, pickle.HIGHEST_PROTOCOL)
                    if len(ends) == 1:
                        _load(data)  # refused now, not after hours
                    ends.append(ends[-1] + file.write(data))
            np.save(staging.path / "ends.npy", np.asarray(ends, dtype=np.int64))

    def read(self, index: int) -> Item:
        if self._data is None or self._ends is None:
            self._ends = np.load(self.folder / "ends.npy")
            self._data = np.memmap(self.folder / "items.bin", dtype=np.uint8, mode="r")
        first, end = self._ends[index], self._ends[index + 1]
        return _load(self._data[first:end].tobytes())

    @override
    def __getstate__(self) -> dict[str, Any]:
        return {"folder": self.folder, "_data": None, "_ends": None}


@final
class _SafeUnpickler(pickle.Unpickler):
    """Reads plain values and arrays only: a file may have been written by others."""

    @override
    def find_class(self, module: str, name: str) -> Any:
        if (module.replace("numpy.core.", "numpy._core."), name) in _SAFE:
            return super().find_class(module, name)
        raise DataError(
            f"cache: cannot keep an object of {module}.{name} in a file\n"
            "  cache plain values and numpy arrays, and make tensors after the cache"
        )


def _load(data: bytes) -> Item:
    return _SafeUnpickler(io.BytesIO(data)).load()


def fingerprint(pipe: Pipe) -> str:
    """A text that changes with the pipes of a chain, their functions and their files."""
    digest = hashlib.sha256()
    one: Pipe | None = pipe
    while one is not None:
        digest.update(type(one).__qualname__.encode())
        for name, value in sorted(vars(one).items()):
            if not name.startswith("_") and name not in ("parent", "number"):
                digest.update(f"{name}={_describe(value)}\n".encode())
        one = getattr(one, "parent", None)
    return digest.hexdigest()[:16]


def _describe(value: object) -> str:
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(_describe, value))}]"
    if isinstance(value, dict):
        return f"{{{', '.join(f'{key}: {_describe(one)}' for key, one in value.items())}}}"
    if isinstance(value, str):
        is_file = len(value) < _LONGEST_PATH and Path(value).is_file()
        facts = Path(value).stat() if is_file else None
        return value if facts is None else f"{value} {facts.st_size} {facts.st_mtime_ns}"
    code = getattr(value, "__code__", None)
    if isinstance(code, CodeType):
        return f"{getattr(value, '__qualname__', '')} {code.co_code.hex()} {code.co_consts!r}"
    if hasattr(value, "func"):  # a partial
        return _describe([value.func, list(value.args), value.keywords])  # type: ignore[attr-defined]
    if isinstance(value, np.ndarray):
        return hashlib.sha256(value.tobytes()).hexdigest()
    state = getattr(value, "__dict__", None)
    return repr(value) if state is None else f"{type(value).__qualname__} {_describe(state)}"
