"""The rows of ``metrics.bin``: how they are laid out, and which of them are whole."""

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
"""Those of which the last field is the CRC-32."""

SMALL_FILE_BYTES = 1 << 20
"""A file of this size is read as a whole each time, since that takes a few milliseconds."""

_CHUNK_ROWS = 16_384  # their bytes, transposed, fit into the cache of a core


def count_valid_bytes(path: Path) -> int:
    """Where a file of rows ends before a torn or damaged tail; 0 when there is no file."""
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
    """Which rows have the checksum that their bytes ask for."""
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
    """What each value of each byte changes in the CRC-32 of an empty head; a CRC is linear."""
    import numpy as np

    def crc(value: int) -> int:
        return zlib.crc32(bytes([value])) ^ zlib.crc32(bytes(1))

    tables = [np.array([crc(value) for value in range(256)], np.uint32)]
    for _ in range(HEAD_BYTES - 1):  # each byte further from the end is shifted once more
        tables.append((tables[-1] >> np.uint32(8)) ^ tables[0][tables[-1] & np.uint32(255)])
    return np.array(tables[::-1])


def get_point_dtype() -> np.dtype[Any]:
    """The type of a row as numpy sees it."""
    import numpy as np

    return np.dtype(list(POINT_FIELDS))
