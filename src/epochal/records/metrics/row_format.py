"""The rows of ``metrics.bin``: their layout and their checksums."""

from __future__ import annotations

import struct
import zlib
from functools import cache
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pathlib import Path

    import numpy as np
    from numpy.typing import NDArray

    Rows = np.ndarray[tuple[int], np.dtype[np.void]]

POINT_FIELDS = (
    ("series", "<u4"),
    ("attempt", "<u4"),
    ("step", "<i8"),
    ("time", "<f8"),
    ("value", "<f8"),
    ("crc", "<u4"),
)
"""The fields of one row, as numpy names them."""

POINT_BYTES = 36
HEAD_BYTES = 32
"""The bytes that the last field, a CRC-32, covers."""

SMALL_FILE_BYTES = 1 << 20
"""Smaller files are read whole each time, which takes a few milliseconds."""

_CHUNK_ROWS = 16_384  # they fit into the cache of a core


def count_valid_bytes(path: Path) -> int:
    """The size of a file up to its last valid row; 0 without a file."""
    try:
        file = path.open("rb")
    except FileNotFoundError:
        return 0
    with file:
        end = file.seek(0, 2) // POINT_BYTES * POINT_BYTES
        while end:
            file.seek(end - POINT_BYTES)
            row = file.read(POINT_BYTES)
            if struct.pack("<I", zlib.crc32(row[:HEAD_BYTES])) == row[HEAD_BYTES:]:
                break
            end -= POINT_BYTES
    return end


def mask_valid_rows(rows: Rows) -> NDArray[np.bool_]:
    """A mask of the rows with a correct checksum."""
    import numpy as np

    data = rows.view(np.uint8).reshape(len(rows), POINT_BYTES)
    crcs = np.full(len(rows), zlib.crc32(bytes(HEAD_BYTES)), np.uint32)
    tables = _crc_tables()
    for start in range(0, len(rows), _CHUNK_ROWS):
        columns = np.ascontiguousarray(data[start : start + _CHUNK_ROWS, :HEAD_BYTES].T)
        chunk = crcs[start : start + _CHUNK_ROWS]
        for table, column in zip(tables, columns, strict=True):
            chunk ^= table[column]
    found: NDArray[np.bool_] = rows["crc"] == crcs
    return found


@cache
def _crc_tables() -> NDArray[np.uint32]:
    """For each position and value of a byte, what it changes in the CRC-32 of zeros."""
    import numpy as np

    def crc(value: int) -> int:
        return zlib.crc32(bytes([value])) ^ zlib.crc32(bytes(1))

    tables = [np.array([crc(value) for value in range(256)], np.uint32)]
    for _ in range(
        HEAD_BYTES - 1
    ):  # a CRC is linear: each byte further from the end is shifted once more
        tables.append((tables[-1] >> np.uint32(8)) ^ tables[0][tables[-1] & np.uint32(255)])
    return np.array(tables[::-1])


def get_point_dtype() -> np.dtype[Any]:
    """The numpy type of a row."""
    import numpy as np

    return np.dtype(list(POINT_FIELDS))
