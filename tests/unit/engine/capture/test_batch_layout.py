"""Tests of what a batch looks like."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass
from typing import Any, NamedTuple

import pytest
import torch
from torch import Tensor

from epochal.engine.capture.batch_layout import (
    UnknownLayoutError,
    copy_batch,
    find_changed_constant,
    flatten_tensors,
    list_tensors,
    map_tensors,
    unflatten_tensors,
)


class Pair(NamedTuple):
    x: Tensor
    y: Tensor


@dataclass(frozen=True)
class Sample:
    x: Tensor
    name: str


def one() -> Tensor:
    return torch.ones(2, 3)


NESTS: dict[str, Any] = {
    "tensor": one(),
    "list": [one(), torch.zeros(4, dtype=torch.int64)],
    "tuple": (one(), [one()]),
    "dict": {"x": one(), "more": {"y": one(), "k": 3}},
    "ordered dict": OrderedDict(x=one(), k=1),
    "named tuple": Pair(one(), one()),
    "dataclass": Sample(one(), "a"),
    "constants": [None, True, 1, 2.5, "text", b"bytes"],
}


def key(value: Any) -> tuple[Any, list[Tensor]]:
    tensors: list[Tensor] = []
    return flatten_tensors(value, tensors), tensors


def test_a_nest_is_rebuilt_around_other_tensors() -> None:
    for name in NESTS:
        nest = NESTS[name]
        copied, tensors = map_tensors(nest, lambda tensor: tensor + 1)
        assert type(copied) is type(nest), name
        before, after = key(nest), key(copied)
        assert before[0] == after[0], name
        assert len(tensors) == len(before[1]), name
        assert all(made is found for made, found in zip(tensors, after[1], strict=True)), name
        assert all(torch.equal(a + 1, b) for a, b in zip(before[1], after[1], strict=True)), name


def test_rebuilding_does_not_change_the_original() -> None:
    nest = {"x": one(), "more": [one()]}
    first = nest["x"]
    unflatten_tensors(nest, iter([torch.zeros(1), torch.zeros(1)]))
    assert nest["x"] is first


def test_shapes_types_names_and_constants_make_another_key() -> None:
    for first, second in [
        (torch.ones(2, 3), torch.ones(3, 2)),
        (torch.ones(2), torch.ones(2, dtype=torch.int64)),
        ([one()], (one(),)),
        ({"x": one()}, {"y": one()}),
        ({"x": one(), "k": 1}, {"x": one(), "k": 2}),
        ([one(), 1], [one(), True]),
        ([one(), one()], [one()]),
        ([one()], [one().requires_grad_()]),
    ]:
        assert key(first)[0] != key(second)[0]


def test_values_of_tensors_do_not_matter() -> None:
    assert key({"x": torch.zeros(2)})[0] == key({"x": torch.ones(2)})[0]


def test_a_key_can_be_looked_up() -> None:
    assert {key((Sample(one(), "a"), [one()]))[0]: "found"}


def test_an_object_whose_inside_cannot_be_seen_is_refused() -> None:
    for inside in [object(), {1, 2}, slice(1)]:
        with pytest.raises(UnknownLayoutError, match=type(inside).__name__):
            key({"x": one(), "other": inside})


def test_a_copy_shares_no_tensor_and_asks_for_gradients_as_before() -> None:
    batch = {"x": torch.zeros(2, requires_grad=True), "y": [torch.zeros(1)], "name": "a"}
    made = copy_batch(batch)
    assert made["name"] == "a"
    assert made["x"].requires_grad
    assert made["x"].is_leaf
    assert not made["y"][0].requires_grad
    assert {id(one) for one in list_tensors(made)}.isdisjoint(
        id(one) for one in list_tensors(batch)
    )


def test_a_constant_that_changes_is_found_and_tensors_are_not() -> None:
    for first, second, where in [
        ({"x": torch.zeros(1), "n": 1}, {"x": torch.zeros(1), "n": 2}, "batch['n']"),
        ([torch.zeros(1), ["a"]], [torch.zeros(1), ["b"]], "batch[1][0]"),
        ([1], [1.5], "batch[0]"),
        ([torch.zeros(1)], [torch.zeros(2)], ""),
        ([torch.zeros(1)], [torch.zeros(1)] * 2, ""),
        ({"x": torch.zeros(1)}, {"x": torch.zeros(2)}, ""),
        ([None], [torch.zeros(2)], ""),
    ]:
        assert (
            find_changed_constant(flatten_tensors(first, []), flatten_tensors(second, [])) == where
        )
