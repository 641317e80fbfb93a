"""Tests of batches as several smaller ones."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from epochal.engine.feed.split_batch import (
    UnsplittableError,
    get_batch_index,
    resize_batch,
    split_batch,
    split_batches,
)


class Pair(NamedTuple):
    image: Tensor
    label: Tensor


@dataclass
class Labelled:
    image: Tensor
    names: list[str]
    scale: float


def test_rows_are_split_in_order_into_parts_of_nearly_equal_size() -> None:
    parts = split_batch(torch.arange(10), 4)
    assert [part.tolist() for part in parts] == [[0, 1, 2], [3, 4, 5], [6, 7, 8, 9]]
    assert [len(part) for part in split_batch(torch.arange(33), 32)] == [16, 17]


@given(st.integers(1, 100), st.integers(1, 100))
def test_no_part_is_too_large_and_none_is_empty(rows: int, most: int) -> None:
    parts = split_batch(torch.arange(rows), most)
    assert torch.equal(torch.cat(parts), torch.arange(rows))
    sizes = [len(part) for part in parts]
    assert 1 <= min(sizes) <= max(sizes) <= most
    assert max(sizes) - min(sizes) <= 1


def test_a_batch_that_is_small_enough_is_the_very_same_object() -> None:
    batch = {"x": torch.ones(4)}
    assert split_batch(batch, 4)[0] is batch


def test_every_nest_is_split_alike() -> None:
    x, names = torch.arange(5), ["a", "b", "c", "d", "e"]
    batches: list[Any] = [
        {"x": x, "meta": {"name": names}, "t": 0.5, "none": None, "epoch": torch.tensor(3)},
        [x, names],
        (x, (x, x)),
        Pair(x, x),
        Labelled(x, names, 2.0),
        OrderedDict(x=x, y=np.arange(5)),
    ]
    for batch in batches:
        first, second = split_batch(batch, 3)
        assert type(first) is type(batch) is type(second)
    first, second = split_batch(batches[0], 3)
    assert first["meta"]["name"] == ["a", "b"]
    assert second["meta"]["name"] == ["c", "d", "e"]
    assert (first["t"], first["none"], int(second["epoch"])) == (0.5, None, 3)
    first, second = split_batch(batches[4], 3)
    assert (second.image.tolist(), second.names, second.scale) == ([2, 3, 4], ["c", "d", "e"], 2.0)
    assert batches[4].names == names
    assert split_batch(batches[5], 3)[1]["y"].tolist() == [2, 3, 4]


def test_a_batch_becomes_one_of_any_size() -> None:
    batch = {"x": torch.arange(3), "name": ["a", "b", "c"], "t": 1.5}
    grown = resize_batch(batch, 5)
    assert (grown["x"].tolist(), grown["name"], grown["t"]) == (
        [0, 1, 2, 0, 1],
        ["a", "b", "c", "a", "b"],
        1.5,
    )
    assert resize_batch(batch, 2)["x"].tolist() == [0, 1]
    with pytest.raises(UnsplittableError):
        resize_batch(Opaque(), 2)


class Opaque:
    pass


def test_what_does_not_show_its_samples_is_refused_with_a_reason() -> None:
    for batch, why in [
        ({"x": torch.ones(4), "mask": torch.ones(7, 4)}, "batch.mask has 7 rows, and .* 4 samples"),
        ([torch.ones(4), ["a", "b"]], r"batch\[1\] has 2 rows"),
        ({"x": torch.ones(4), "graph": Opaque()}, "batch.graph is a Opaque"),
        (Opaque(), "a Opaque does not show how many samples it has"),
    ]:
        with pytest.raises(UnsplittableError, match=why):
            split_batch(batch, 2)


def test_microbatches_know_their_batch() -> None:
    chunks = split_batches((torch.ones(5), torch.ones(2)), 2)
    assert [len(part) for part in chunks] == [1, 2, 2, 2]
    assert [get_batch_index(chunks, index) for index in range(4)] == [0, 0, 0, 1]
    assert get_batch_index((torch.ones(5), torch.ones(2)), 1) == 1
