"""The layout of safetensors files: the header and the order of tensors."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, final

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

DTYPE_BYTES: Mapping[str, int] = {
    "BOOL": 1, "U8": 1, "I8": 1, "F8_E4M3": 1, "F8_E5M2": 1,
    "U16": 2, "I16": 2, "F16": 2, "BF16": 2,
    "U32": 4, "I32": 4, "F32": 4,
    "U64": 8, "I64": 8, "F64": 8, "C64": 8,
}  # fmt: skip
"""The element types of safetensors files, with their sizes."""


@final
@dataclass(frozen=True, slots=True)
class Blob:
    """The bytes of one tensor, in row-major order."""

    dtype: str
    """The name that safetensors gives to the element type, such as ``BF16``."""

    shape: tuple[int, ...]
    data: bytes | memoryview | Callable[[], bytes | memoryview]
    """The bytes, or a function that makes them when they are written, to save memory."""

    @property
    def num_bytes(self) -> int:
        """The size that type and shape require."""
        return math.prod(self.shape) * DTYPE_BYTES[self.dtype]

    def view(self, name: str) -> memoryview:
        """The bytes; raises ValueError when they are too many or too few."""
        data = self.data() if callable(self.data) else self.data
        size = memoryview(data).nbytes
        if size != self.num_bytes:
            raise ValueError(f"{name}: {size} bytes do not make {self.dtype} of {self.shape}")
        return memoryview(data).cast("B") if size else memoryview(b"")


def build_header(
    tensors: Mapping[str, Blob], metadata: Mapping[str, str]
) -> tuple[bytes, list[str]]:
    """The header of a file with these tensors, and their names in the order of their data."""
    names = sorted(tensors, key=lambda name: (-DTYPE_BYTES[tensors[name].dtype], name))
    entries: dict[str, object] = {"__metadata__": dict(metadata)} if metadata else {}
    offset = 0
    for name in names:
        blob = tensors[name]
        if name == "__metadata__":
            raise ValueError(f"{name}: the name is taken by the format itself")
        if not callable(blob.data):
            blob.view(name)
        end = offset + blob.num_bytes
        entries[name] = {
            "dtype": blob.dtype,
            "shape": list(blob.shape),
            "data_offsets": [offset, end],
        }
        offset = end
    text = json.dumps(entries, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)  # the data must start at a multiple of 8
    return len(text).to_bytes(8, "little") + text, names
