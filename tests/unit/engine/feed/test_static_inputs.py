"""Tests of where gathered batches go."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pytest
import torch
from torch import Tensor

from engine.recorded_graph import Recorder
from epochal.engine.feed import static_inputs as static_inputs_module
from epochal.engine.feed.static_inputs import GraphGather, StaticInputs

if TYPE_CHECKING:
    from collections.abc import Iterator

ROWS = torch.arange(20.0).reshape(10, 2)
LABELS = torch.arange(10)


def places(size: int) -> list[Tensor]:
    return [torch.zeros(size, 2), torch.zeros(size, dtype=torch.int64)]


def batches(static_inputs: StaticInputs, *columns: Tensor, size: int = 4) -> list[list[Tensor]]:
    """A pass over ten rows, the last one first: copies of each batch, and its first tensor."""
    order = torch.arange(9, -1, -1)
    chosen = []

    def select(indices: Tensor) -> list[Tensor]:
        return [column[indices] for column in columns]

    for batch in static_inputs.gather_batches(
        columns, list, order, torch.split(order, size), select
    ):
        chosen.append([part.clone() for part in batch])
        chosen[-1].append(batch[0])
    return chosen


def labels(found: list[list[Tensor]]) -> list[list[int]]:
    return [batch[1].tolist() for batch in found]


EXPECTED = [[9, 8, 7, 6], [5, 4, 3, 2], [1, 0]]


def test_without_targets_all_batches_are_new() -> None:
    found = batches(StaticInputs(), ROWS, LABELS)
    assert labels(found) == EXPECTED
    assert len({batch[2].data_ptr() for batch in found}) == 3


def test_only_batches_that_fit_are_gathered_into_the_targets() -> None:
    static_inputs, targets = StaticInputs(), places(4)
    static_inputs.set_targets(targets)
    found = batches(static_inputs, ROWS, LABELS)
    assert labels(found) == EXPECTED
    assert [batch[2] is targets[0] for batch in found] == [True, True, False]
    assert all(torch.equal(batch[0], ROWS[batch[1]]) for batch in found)


def test_targets_of_a_short_batch_take_only_that_batch() -> None:
    static_inputs, targets = StaticInputs(), places(2)
    static_inputs.set_targets(targets)
    found = batches(static_inputs, ROWS, LABELS)
    assert labels(found) == EXPECTED
    assert [batch[2] is targets[0] for batch in found] == [False, False, True]


def test_targets_of_another_dtype_are_not_written() -> None:
    static_inputs, targets = StaticInputs(), places(4)
    static_inputs.set_targets(targets)
    found = batches(static_inputs, ROWS.double(), LABELS)
    assert labels(found) == EXPECTED
    assert not any(batch[2] is targets[0] for batch in found)
    assert targets[0].count_nonzero() == 0


def test_targets_can_be_removed() -> None:
    static_inputs, targets = StaticInputs(), places(4)
    static_inputs.set_targets(targets)
    static_inputs.set_targets([])
    found = batches(static_inputs, ROWS, LABELS)
    assert labels(found) == EXPECTED
    assert targets[0].count_nonzero() == 0


LENGTH, SIZE = 23, 4


class Graph:
    """Does the noted operations again; Python is not asked."""

    def __init__(self) -> None:
        self.recorder = Recorder()

    def replay(self) -> None:
        for function, args, kwargs, _ in self.recorder.operations:
            function(*args, **kwargs)


@contextmanager
def recording(graph: Graph, **_: Any) -> Iterator[None]:
    with graph.recorder:
        yield


@pytest.fixture
def recorded_graphs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "CUDAGraph", Graph)
    monkeypatch.setattr(torch.cuda, "graph", recording)
    monkeypatch.setattr(static_inputs_module, "capture_stream", lambda device: None)


@pytest.mark.usefixtures("recorded_graphs")
def test_rows_are_gathered_in_order_from_any_position() -> None:
    columns = torch.randn(LENGTH, 3), torch.arange(LENGTH)
    targets = [torch.zeros(SIZE, 3), torch.zeros(SIZE, dtype=torch.int64)]
    rows = GraphGather(columns, targets, LENGTH)
    for seed in (1, 2):
        order = torch.randperm(LENGTH, generator=torch.Generator().manual_seed(seed))
        rows.set_order(order)
        for first in (0, SIZE, 2 * SIZE, 11, 11 + SIZE, 0, LENGTH - SIZE):
            rows.gather(first, order)
            expected = order[first : first + SIZE]
            assert torch.equal(targets[1], expected)
            assert torch.equal(targets[0], columns[0][expected])


@pytest.mark.usefixtures("recorded_graphs")
def test_a_shorter_order_is_followed_too() -> None:
    target = torch.zeros(SIZE, dtype=torch.int64)
    rows = GraphGather((torch.arange(LENGTH),), [target], LENGTH)
    rows.set_order(torch.arange(LENGTH))
    rows.gather(0, target)
    rows.set_order(torch.tensor([9, 7, 5, 3, 1]))
    rows.gather(1, target)
    assert target.tolist() == [7, 5, 3, 1]


@pytest.mark.usefixtures("recorded_graphs")
def test_a_new_order_is_followed_from_the_given_position() -> None:
    target = torch.zeros(SIZE, dtype=torch.int64)
    rows = GraphGather((torch.arange(LENGTH),), [target], LENGTH)
    rows.set_order(torch.arange(LENGTH))
    rows.gather(0, target)
    rows.set_order(torch.arange(LENGTH).flip(0))
    rows.gather(SIZE, target)
    assert target.tolist() == [18, 17, 16, 15]
