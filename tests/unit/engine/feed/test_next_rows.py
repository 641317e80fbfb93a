"""Tests of rows that a replayed graph gathers, with a stand-in for the graph."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pytest
import torch

from engine.recorded_graph import Recorder
from epochal.engine.feed import static_inputs as next_rows
from epochal.engine.feed.static_inputs import GraphGather

if TYPE_CHECKING:
    from collections.abc import Iterator

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


@pytest.fixture(autouse=True)
def graphs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "CUDAGraph", Graph)
    monkeypatch.setattr(torch.cuda, "graph", recording)
    monkeypatch.setattr(next_rows, "capture_stream", lambda device: None)


def test_rows_come_in_the_order_that_was_begun_and_from_any_place() -> None:
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


def test_a_shorter_order_is_followed_too() -> None:
    target = torch.zeros(SIZE, dtype=torch.int64)
    rows = GraphGather((torch.arange(LENGTH),), [target], LENGTH)
    rows.set_order(torch.arange(LENGTH))
    rows.gather(0, target)
    rows.set_order(torch.tensor([9, 7, 5, 3, 1]))
    rows.gather(1, target)
    assert target.tolist() == [7, 5, 3, 1]


def test_a_new_order_is_followed_from_the_place_that_is_asked_for() -> None:
    target = torch.zeros(SIZE, dtype=torch.int64)
    rows = GraphGather((torch.arange(LENGTH),), [target], LENGTH)
    rows.set_order(torch.arange(LENGTH))
    rows.gather(0, target)
    rows.set_order(torch.arange(LENGTH).flip(0))
    rows.gather(SIZE, target)
    assert target.tolist() == [18, 17, 16, 15]
