"""Tests of epochal.durable.blobs."""

from __future__ import annotations

import json

import pytest

from epochal.durable.safetensors_layout import Blob, build_header


def test_data_starts_aligned_and_wide_types_come_first() -> None:
    blobs = {"a": Blob("U8", (1,), b"a"), "b": Blob("I64", (1,), bytes(8))}
    header, names = build_header(blobs, {})
    assert names == ["b", "a"]
    assert len(header) % 8 == 0
    assert json.loads(header[8:])["a"]["data_offsets"] == [8, 9]


def test_bytes_are_made_when_their_turn_comes() -> None:
    made = []

    def make() -> bytes:
        made.append(True)
        return b"abc"

    blob = Blob("U8", (3,), make)
    build_header({"a": blob}, {})
    assert not made
    assert bytes(blob.view("a")) == b"abc"


def test_tensors_that_contradict_themselves_are_refused() -> None:
    for name, blob in (
        ("a", Blob("F32", (2,), bytes(4))),
        ("__metadata__", Blob("U8", (1,), b"x")),
    ):
        with pytest.raises(ValueError, match=f"{name}: "):
            build_header({name: blob}, {})


def test_made_bytes_of_another_size_are_refused() -> None:
    with pytest.raises(ValueError, match=r"a: 2 bytes do not make U8 of \(3,\)"):
        Blob("U8", (3,), lambda: b"ab").view("a")
