"""Tests of loaders of which nothing is known: read again, or asked for their state."""

from __future__ import annotations

import logging
import random
from typing import TYPE_CHECKING, Any

import torch
from torch.utils.data import DataLoader, IterableDataset

from epochal.engine.feed.host_generators import HostGenerators
from epochal.engine.feed.loaders import (
    IterableLoaders,
    StatefulBatches,
    find_stateful_owner,
)
from epochal.engine.feed.sampling_order import DataPass

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pytest


class Drawing:
    """Draws each batch, from the global generators."""

    def __iter__(self) -> Iterator[float]:
        offset = random.random()
        for _ in range(5):
            yield offset + torch.rand(()).item()


class Stream(IterableDataset[float]):
    """The same as a dataset."""

    def __iter__(self) -> Iterator[float]:
        for number in range(5):
            yield number + random.random()


class Counting(Stream):
    """Knows where it is."""

    def __init__(self) -> None:
        self.position = 0
        self.reads = 0

    def state_dict(self) -> dict[str, int]:
        return {"position": self.position}

    def load_state_dict(self, state: dict[str, int]) -> None:
        self.position = state["position"]

    def __iter__(self) -> Iterator[float]:
        while self.position < 5:
            self.reads += 1
            self.position += 1
            yield self.position + random.random()
        self.position = 0


def read(loader: Any, seed: int = 3, start: int = 0, state: Any = None) -> list[Any]:
    batches = IterableLoaders().open(loader, DataPass(seed, start=start), state)
    return [batch.item() if isinstance(batch, torch.Tensor) else batch for batch in batches]


def test_batches_are_a_function_of_the_seed_and_their_position() -> None:
    for make in [Drawing, lambda: DataLoader(Stream(), batch_size=None)]:
        whole = read(make())
        random.random()
        for start in range(7):
            assert read(make(), start=start) == whole[start:]
        assert read(make(), seed=4) != whole


def test_global_generators_are_restored_when_reading_ahead() -> None:
    generators = HostGenerators()
    before = generators.take()
    batches = IterableLoaders().open(Drawing(), DataPass(3))
    for _ in batches:
        assert before.equals(generators.take())


def test_lists_are_taken_as_they_are() -> None:
    assert read([1, 2, 3], start=1) == [2, 3]
    assert read((1, 2, 3)) == [1, 2, 3]


def test_a_loader_that_says_that_it_draws_nothing_is_not_seeded() -> None:
    class Still(Drawing):
        draws_random = False

    random.seed(1)
    one = read(Still())
    assert read(Still()) != one


def test_reading_batches_again_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    foreign = IterableLoaders()
    for _ in range(2):
        list(foreign.open(Drawing(), DataPass(3)))
    assert not caplog.records
    for _ in range(2):
        list(foreign.open(Drawing(), DataPass(3, start=2)))
    (record,) = caplog.records
    assert record.levelno == logging.WARNING
    assert record.getMessage() == (
        "data: Drawing cannot start at a position, so the 2 batches before it are read again; "
        "methods state_dict and load_state_dict would avoid that"
    )


def test_a_state_saves_reading_again(caplog: pytest.LogCaptureFixture) -> None:
    whole = read(DataLoader(Counting(), batch_size=None))
    for start in range(5):
        dataset = Counting()
        loader = DataLoader(dataset, batch_size=None)
        assert (
            read(loader, start=start, state={"owner": {"position": start}, "is_over": False})
            == whole[start:]
        )
        assert dataset.reads == 5 - start
    assert not caplog.records


def test_a_state_is_looked_for_in_the_loader_and_its_dataset() -> None:
    dataset = Counting()
    assert find_stateful_owner(dataset) is dataset
    assert find_stateful_owner(DataLoader(dataset)) is dataset
    assert find_stateful_owner(DataLoader(dataset, num_workers=1)) is None
    assert find_stateful_owner(DataLoader(Stream())) is None
    assert find_stateful_owner([1]) is None


def test_the_generators_of_the_loader_come_back() -> None:
    generator = torch.Generator().manual_seed(5)
    loader = DataLoader(Stream(), batch_size=None, generator=generator)
    read(loader)
    assert loader.generator is generator


def test_asking_for_a_state_changes_nothing_but_says_when_it_is_over() -> None:
    whole = read(DataLoader(Counting(), batch_size=None))
    batches = IterableLoaders().open(DataLoader(Counting(), batch_size=None), DataPass(3))
    assert isinstance(batches, StatefulBatches)
    states, given = [], []
    for batch in batches:
        given.append(batch)
        states.append([batches.state() for _ in range(2)])
    assert given == whole
    assert [one for one, _ in states] == [other for _, other in states]
    assert [one["is_over"] for one, _ in states] == [False] * 4 + [True]
    assert [one["owner"]["position"] for one, _ in states[:4]] == [1, 2, 3, 4]
    assert read(DataLoader(Counting(), batch_size=None), start=5, state=states[4][0]) == []


def test_a_pass_that_ends_early_reads_no_further_for_its_state() -> None:
    dataset = Counting()
    batches = IterableLoaders().open(DataLoader(dataset, batch_size=None), DataPass(3))
    assert isinstance(batches, StatefulBatches)
    next(batches)
    assert batches.state(is_over=True) == {"owner": {"position": 1}, "is_over": True}
    assert dataset.reads == 1


def test_a_state_may_be_that_of_an_earlier_position() -> None:
    whole = read(Counting())
    loader = Counting()
    loader.position = 1
    state = {"owner": {"position": 1}, "is_over": False, "position": 1}
    assert read(loader, start=3, state=state) == whole[3:]
    assert loader.reads == 4
