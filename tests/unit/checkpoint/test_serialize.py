"""Tests of epochal.checkpoint.serialize and deserialize: trees survive a round trip bitwise."""

from __future__ import annotations

import json
import math
import struct
from collections import Counter, OrderedDict, defaultdict, deque
from enum import IntEnum
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from epochal.checkpoint.serialize import (
    deserialize_state,
    serialize_state,
    serialize_tree,
    snapshot_to_host,
)
from epochal.errors import CheckpointError


def through_text(tree: Any) -> Any:
    plain, tensors, _ = serialize_tree(tree, "part")
    text = json.dumps(plain, allow_nan=False)
    return deserialize_state(json.loads(text), tensors)


def bits(value: float) -> bytes:
    return struct.pack(">d", value)


NAN_WITH_A_NOTE = struct.unpack(">d", bytes.fromhex("fff8000000000123"))[0]
TREES = {
    "none": None,
    "booleans": [True, False],
    "tuple": (1, (2, [3])),
    "empty": [(), [], {}, set(), "", b""],
    "integer keys": {0: "a", 7: {1: 2}},
    "keys of many kinds": {(1, "a"): 1, None: 2, True: 3, 2.5: 4, b"x": 5},
    "keys that look like tags": {"$tensor": "model/x", "$": 1},
    "big integers": [2**53, 2**53 + 1, -(2**63), 2**64, 10**5000],
    "bytes": [b"\0\xff", bytearray(b"ab")],
    "text": ["ä", "\0", "\ud800", "\ud83d\ude00", "\U0001f600", "$nan"],
    "counter": Counter({"a": 3, 1: 0, "c": -2}),
    "ordered": OrderedDict([("b", 1), ("a", 2)]),
    "default": defaultdict(list, {"a": [1]}),
    "default without a factory": defaultdict(None, {1: 2}),
    "sets": [{3, 1, "a"}, frozenset({(1, 2)})],
    "deque": deque([1, (2,)], maxlen=5),
    "complex": 1.5 - 2j,
    "torch": [torch.float32, torch.device("cuda", 1), torch.Size([2, 3])],
}


def test_plain_trees_keep_values_and_types() -> None:
    for tree in TREES.values():
        again = through_text(tree)
        assert again == tree
        assert isinstance(tree, list) or repr(again) == repr(tree)
        assert type(again) is type(tree)


def test_floats_keep_every_bit() -> None:
    odd = [0.0, -0.0, math.inf, -math.inf, math.nan, NAN_WITH_A_NOTE]
    for value in [*odd, 5e-324, 0.1, 1e22, -1e308]:
        assert bits(through_text(value)) == bits(value)


def test_containers_keep_limit_factory_and_order() -> None:
    assert through_text(deque([1], maxlen=3)).maxlen == 3
    assert through_text(defaultdict(list)).default_factory is list
    assert list(through_text({"b": 1, "a": 2, 3: 4, 1: 5})) == ["b", "a", 3, 1]
    inner = [1]
    assert through_text([inner, inner]) == [[1], [1]]


def test_numpy_scalars_keep_their_type() -> None:
    for value in [
        np.float32(1.5),
        np.float64(-0.0),
        np.int8(-3),
        np.bool_(True),
        np.complex128(1 + 2j),
        np.datetime64("2026-01-02"),
        np.str_("ä"),
    ]:
        again = through_text(value)
        assert type(again) is type(value)
        assert again.dtype == value.dtype
        assert again.tobytes() == value.tobytes()


def test_numpy_arrays_keep_type_shape_and_order() -> None:
    for array in [
        np.arange(6).reshape(2, 3),
        np.arange(6, dtype=">i2").reshape(2, 3),
        np.asfortranarray(np.arange(6.0).reshape(2, 3)),
        np.zeros((0, 3), np.float16),
        np.array(3.0),
        np.array(["ab", "c"]),
        np.array([True, False]),
        np.arange(10)[::3],
        np.arange(10)[::-1],
        np.random.RandomState(0).get_state()[1],
    ]:
        again = through_text(array)
        assert again.dtype == array.dtype
        assert again.shape == array.shape
        assert np.array_equal(again, array)
        assert again.flags.f_contiguous == array.flags.f_contiguous or not array.flags.forc
        assert again.flags.writeable


scalars = st.none() | st.booleans() | st.integers() | st.text() | st.binary() | st.floats()
keys = st.integers() | st.text() | st.booleans()
trees = st.recursive(
    scalars,
    lambda inner: (
        st.lists(inner)
        | st.dictionaries(keys, inner)
        | st.lists(inner).map(tuple)
        | st.lists(inner).map(lambda items: deque(items, maxlen=9))
    ),
    max_leaves=20,
)


@settings(max_examples=200, deadline=None)
@given(trees)
def test_any_tree_survives_a_round_trip(tree: object) -> None:
    assert repr(through_text(tree)) == repr(tree)


class Pair(NamedTuple):
    left: int


class Colour(IntEnum):
    RED = 1


REFUSED = {
    "a function": (lambda: 0, "a function"),
    "an object": (object(), "a object"),
    "a named tuple": (Pair(1), "Pair"),
    "an enum": (Colour.RED, "Colour"),
    "a generator": (torch.Generator(), "torch._C.Generator"),
    "objects of numpy": (np.array([None]), "a numpy value of type object"),
    "a factory": (defaultdict(lambda: 0), "a defaultdict of <function"),
    "a sparse tensor": (torch.eye(2).to_sparse(), "a tensor of layout torch.sparse_coo"),
    "a meta tensor": (torch.empty(2, device="meta"), r"without values \(meta\)"),
}


@pytest.mark.parametrize(("value", "what"), REFUSED.values(), ids=REFUSED.keys())
def test_unsupported_values_are_refused_with_part_and_key(value: object, what: str) -> None:
    with pytest.raises(
        CheckpointError, match=rf"^hooks: 3\.inner\.0: cannot be kept in a checkpoint: .*{what}"
    ) as caught:
        serialize_tree({3: {"inner": (value,)}}, "hooks")
    assert "\n  " in str(caught.value)


def test_unsupported_parts_and_circular_structures_are_refused() -> None:
    with pytest.raises(CheckpointError, match=r"^task: cannot be kept in a checkpoint: a object\n"):
        serialize_tree(object(), "task")
    tree: list[object] = []
    tree.append({"again": tree})
    with pytest.raises(CheckpointError, match=r"task: 0\.again: .* contains itself"):
        serialize_tree(tree, "task")


def test_memory_is_shared_across_parts() -> None:
    weight = torch.arange(4.0)
    plain, tensors, _ = serialize_state({"model": {"w": weight}, "average": [weight]})
    assert list(tensors) == ["model/w"]
    again = deserialize_state(plain, {name: tensor.clone() for name, tensor in tensors.items()})
    again["model"]["w"][0] = 9
    assert again["average"][0][0] == 9


def test_a_snapshot_is_independent_of_the_original() -> None:
    weight, counts = torch.ones(2), [1]
    taken = snapshot_to_host({"model": {"w": weight}, "counts": counts})
    weight.zero_()
    counts.append(2)
    again = deserialize_state(*taken)
    assert again["model"]["w"].tolist() == [1, 1]
    assert again["counts"] == [1]


def test_damaged_text_is_a_checkpoint_error() -> None:
    for plain in (
        {"$tensor": "nowhere"},
        {"$int": "x"},
        {"$tuple": 1},
        {"$dtype": "load"},
        {"$scalar": ["|O", ""]},
        {"$array": {"$tensor": "x"}, "dtype": "<f8", "shape": [3], "fortran": False},
        {"$tensor": "x", "offset": 0, "shape": [100], "stride": [1]},
        {"$defaultdict": ["eval", []]},
    ):
        found = None
        try:
            deserialize_state(plain, {"x": torch.zeros(2)})
        except CheckpointError as error:
            found = str(error)
        assert found is not None, plain
        assert found.startswith("state: "), plain
    with pytest.raises(CheckpointError, match=r"state: unknown tag '\$later', written by a newer"):
        deserialize_state({"$later": 1}, {})
