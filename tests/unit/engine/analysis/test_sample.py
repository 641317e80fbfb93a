"""Tests of single samples and copies."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import pytest
import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset, IterableDataset

from epochal.data import Tensors
from epochal.engine.analysis.sample import (
    copy_batch,
    first_of_batch,
    first_of_columns,
    first_sample,
)
from epochal.errors import DataError, TaskError


class Stream(IterableDataset[Tensor]):
    def __iter__(self):
        return iter(torch.arange(5.0).unsqueeze(1))


class Books(Dataset[Tensor]):
    """Samples by name only."""

    def __getitem__(self, index: Any) -> Tensor:
        return {"a": torch.zeros(1)}[index]


class Pair(NamedTuple):
    x: Tensor
    name: list[str]


@dataclass
class Graph:
    x: Tensor
    edges: Tensor


ROWS = torch.arange(6.0).view(3, 2)


@pytest.mark.parametrize(
    "loader",
    [
        DataLoader(ROWS, batch_size=2),
        DataLoader(ROWS, batch_size=None),
        [ROWS, ROWS],
    ],
)
def test_the_first_sample_is_a_batch_of_one(loader: Any) -> None:
    sample = first_sample(loader)
    if isinstance(loader, DataLoader) and loader.batch_size is None:
        assert sample.tolist() == [0.0]  # what it loads is a batch already
    else:
        assert sample.tolist() == [[0.0, 1.0]]


def test_in_memory_data_are_gathered_by_their_own_collate() -> None:
    sample = first_sample(Tensors(x=ROWS).loader(batch_size=2))
    assert sample["x"].tolist() == [[0.0, 1.0]]


@pytest.mark.parametrize("size", [2, None])
def test_a_stream_gives_its_first_sample(size: int | None) -> None:
    assert first_sample(DataLoader(Stream(), batch_size=size)).flatten().tolist() == [0.0]


def test_order_of_the_loader_is_not_touched() -> None:
    loader = DataLoader(ROWS, batch_size=1, shuffle=True, generator=torch.Generator())
    before = loader.generator.get_state()
    first_sample(loader)
    assert torch.equal(loader.generator.get_state(), before)


def test_an_iterator_is_not_read() -> None:
    batches = iter([ROWS])
    with pytest.raises(DataError, match="read only once"):
        first_sample(batches)
    assert next(batches) is ROWS


def test_data_without_a_first_sample_are_named() -> None:
    with pytest.raises(DataError, match="Books has no sample 0"):
        first_sample(DataLoader(Books(), batch_size=2, sampler=["a"]))
    with pytest.raises(DataError, match="has no sample"):
        first_sample([])


def test_rows_of_nested_batches_are_narrowed() -> None:
    pair = first_of_batch(Pair(ROWS, ["a", "b", "c"]))
    assert (pair.x.tolist(), pair.name) == ([[0.0, 1.0]], ["a"])
    batch = first_of_batch({"x": ROWS, "scale": torch.ones(2), "deep": [(ROWS, 1.5)]})
    assert batch["x"].shape == batch["deep"][0][0].shape == (1, 2)
    assert batch["scale"].shape == (2,)
    graph = Graph(ROWS, torch.zeros(2, 9))
    assert first_of_batch(graph).edges.shape == (2, 9)
    assert graph.x is ROWS
    assert first_of_batch("text") == "text"


def test_inputs_are_chosen_and_ordered_by_keys() -> None:
    data = {"x": ROWS, "names": ["a", "b"], "y": ROWS + 1}
    first, second = first_of_columns(data, ("y", "x"))
    assert (first.tolist(), second.tolist()) == ([[1.0, 2.0]], [[0.0, 1.0]])
    assert [len(one) for one in first_of_columns(data, ())] == [1, 1, 1]
    assert data["names"] == ["a", "b"]


def test_unusable_data_are_named() -> None:
    table = [
        ({"image": ROWS}, ("imaeg",), "there is no 'imaeg'\n  did you mean 'image'"),
        ({"x": []}, (), r"data\.x: is empty"),
        ({"x": 3}, (), r"data\.x: is int, which has no samples"),
        ({"x": torch.tensor(1.0)}, (), r"data\.x: is Tensor, which has no samples"),
    ]
    for data, keys, message in table:
        with pytest.raises(TaskError, match=message):
            first_of_columns(data, keys)


def test_copies_share_nothing() -> None:
    batch = {"x": ROWS, "deep": [(ROWS, "a")], "graph": Graph(ROWS, ROWS)}
    copy = copy_batch(batch)
    for tensor in (copy["x"], copy["deep"][0][0], copy["graph"].x):
        tensor.zero_()
    copy["deep"].clear()
    assert ROWS.sum() == 15
    assert len(batch["deep"]) == 1
