from __future__ import annotations

import dataclasses
import json
import math
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from epochal import durable


def test_lines_carry_a_checksum_that_finds_any_changed_byte() -> None:
    line = durable.encode_line({"kind": "saved", "step": 12})
    assert json.loads(line) == {"kind": "saved", "step": 12, "crc": json.loads(line)["crc"]}
    assert durable.decode_line(line) == {"kind": "saved", "step": 12}
    for position in range(len(line) - 1):
        changed = bytearray(line)
        changed[position] ^= 1
        assert durable.decode_line(bytes(changed)) != {"kind": "saved", "step": 12}, changed


def test_damaged_lines_are_none() -> None:
    for line in (b"", b"\n", b"{", b"[1]\n", b"\xff\n", b'{"a":1,"crc":x}\n'):
        assert durable.decode_line(line) is None


def test_lines_written_by_hand_need_no_checksum() -> None:
    assert durable.decode_line(b'{"id": 0, "name": "a"}\n') == {"id": 0, "name": "a"}


@dataclasses.dataclass
class Pair:
    left: object
    right: object


class Array:
    def tolist(self) -> object:
        return [1.0, math.inf]


def test_values_without_a_json_form_are_converted(tmp_path) -> None:
    value = {
        1: (math.nan, -math.inf),
        "pair": Pair(Path("a/b"), {"z", "y"}),
        "array": Array(),
        "surrogate": "\ud800",
        "class": int,
    }
    durable.write_json(tmp_path / "a.json", value)
    text = (tmp_path / "a.json").read_text("utf-8")
    assert json.loads(text, parse_constant=pytest.fail) == {
        "1": ["$nan", "-$inf"],
        "pair": {"left": "a/b", "right": ["y", "z"]},
        "array": [1.0, "$inf"],
        "surrogate": "\ud800",
        "class": "<class 'int'>",
    }


floats = st.floats(allow_nan=False)
scalars = st.none() | st.booleans() | st.integers() | floats | st.text()
trees = st.recursive(
    scalars, lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner), max_leaves=20
)


@settings(max_examples=100, deadline=None)
@given(trees)
def test_json_values_survive_a_round_trip(value) -> None:
    assert durable.decode_json(durable.encode_json(value)) == value
    assert durable.decode_line(durable.encode_line({"value": value})) == {"value": value}
