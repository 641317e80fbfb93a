"""Tests of epochal.records.metrics.points."""

from __future__ import annotations

import struct
import zlib
from typing import TYPE_CHECKING

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from epochal.records.metrics.points import (
    HEAD_BYTES,
    POINT_BYTES,
    POINT_FIELDS,
    count_valid_bytes,
    get_point_dtype,
    mask_valid_rows,
)

if TYPE_CHECKING:
    from pathlib import Path

HEADS = st.binary(min_size=HEAD_BYTES, max_size=HEAD_BYTES)


def row_of(head: bytes) -> bytes:
    return head + struct.pack("<I", zlib.crc32(head))


def whole(data: bytes) -> list[bool]:
    return [bool(one) for one in mask_valid_rows(np.frombuffer(data, get_point_dtype()))]


def test_a_row_is_a_head_and_its_checksum() -> None:
    assert get_point_dtype().itemsize == POINT_BYTES == HEAD_BYTES + 4
    assert [name for name, _ in POINT_FIELDS][-1] == "crc"


@settings(max_examples=100, deadline=None)
@given(st.lists(HEADS, max_size=20))
def test_valid_rows_have_the_checksum_of_zlib(heads: list[bytes]) -> None:
    assert whole(b"".join(map(row_of, heads))) == [True] * len(heads)


@settings(max_examples=100, deadline=None)
@given(HEADS, st.integers(0, POINT_BYTES - 1), st.integers(1, 255))
def test_a_changed_byte_is_detected(head: bytes, position: int, change: int) -> None:
    row = bytearray(row_of(head))
    row[position] ^= change
    assert whole(bytes(row)) == [False]


def test_many_rows_are_checked_in_chunks() -> None:
    data = bytearray(b"".join(row_of(struct.pack("<qqqq", i, 0, 0, 0)) for i in range(40_000)))
    for position in (0, 16_384, 39_999):
        data[position * POINT_BYTES] ^= 1
    found = mask_valid_rows(np.frombuffer(bytes(data), get_point_dtype()))
    assert np.flatnonzero(~found).tolist() == [0, 16_384, 39_999]


def test_valid_bytes_end_after_the_last_valid_row(tmp_path: Path) -> None:
    for tail, kept in [
        (b"", 3),
        (b"torn", 3),
        (bytes(POINT_BYTES), 3),
        (bytes(POINT_BYTES * 9 + 5), 3),
        (b"\xff" * POINT_BYTES + row_of(bytes(32)), 5),
    ]:
        path = tmp_path / "metrics.bin"
        path.write_bytes(b"".join(row_of(bytes([i]) * 32) for i in range(3)) + tail)
        assert count_valid_bytes(path) == kept * POINT_BYTES


def test_a_missing_or_invalid_file_has_no_valid_bytes(tmp_path: Path) -> None:
    assert count_valid_bytes(tmp_path / "metrics.bin") == 0
    (tmp_path / "metrics.bin").write_bytes(bytes(1000))
    assert count_valid_bytes(tmp_path / "metrics.bin") == 0
