"""What each process reads of a pass."""

from __future__ import annotations

import random
from collections import Counter
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest
import torch
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler

from epochal import data
from epochal.engine.feed.feed import Feed
from epochal.engine.feed.rank_shares import SampleSlices, WholeBatches
from epochal.engine.feed.sampling_order import DataPass
from epochal.errors import DataError

if TYPE_CHECKING:
    from epochal.data.chain_loader import ChainLoader


class Task:
    def __init__(self, loader: object) -> None:
        self.train_loader = loader


class Stream:
    """Batches that can only be iterated."""

    def __iter__(self):
        return iter([torch.arange(4), torch.arange(4, 7)])


def read(loader: object, rank: int, size: int) -> tuple[list[list[int]], list[int], int]:
    feed = Feed(Task(loader), seed=1, accumulate=1, limit=None, ranks=(rank, size))
    batches, rows = [], []
    for (batch,) in feed.epoch(0):
        values = batch[0] if isinstance(batch, list) else batch
        batches.append(values.tolist())
        rows += feed.rows
    return batches, rows, feed.samples


def test_slices_of_a_batch_are_the_whole_batch_in_order() -> None:
    items = list(range(11))
    for size in (1, 2, 3, 4):
        shares = [SampleSlices(rank, size) for rank in range(size)]
        parts = [items[share.bounds(len(items))] for share in shares]
        assert [one for part in parts for one in part] == items, size
        assert max(map(len, parts)) - min(map(len, parts)) <= 1, size


def test_process_without_samples_reads_one_that_does_not_count() -> None:
    shares = [SampleSlices(rank, 4) for rank in range(4)]
    assert [share.is_empty(2) for share in shares] == [False, False, True, True]
    assert shares[3].bounds(2) == slice(0, 1)


def test_processes_share_the_batches_of_every_kind_of_loader() -> None:
    points = TensorDataset(torch.arange(10))
    for loader in (
        DataLoader(points, batch_size=4, shuffle=True),
        DataLoader(points, batch_size=4),
        DataLoader(list(range(10)), batch_size=4, shuffle=True),
        Stream(),
    ):
        whole, rows, samples = read(loader, 0, 1)
        parts = [read(loader, rank, 2) for rank in range(2)]
        joined = [one + other for one, other in zip(parts[0][0], parts[1][0], strict=True)]
        assert joined == whole, loader
        assert all(part[1:] == (rows, samples) for part in parts), loader
        assert sum(rows) == samples == sum(map(len, whole)), loader


class Noisy:
    """Adds random numbers, and notes what was asked of it."""

    def __init__(self) -> None:
        self.seen: list[int] = []

    def __call__(self, index: int) -> tuple[int, float]:
        self.seen.append(index)
        return index, random.random() + torch.rand(()).item()

    def twice(self, index: int) -> list[int]:
        self.seen.append(index)
        return [index, index]


def as_batch(samples: list[tuple[int, float]]) -> torch.Tensor:
    return torch.tensor(samples, dtype=torch.float64)


def double(batch: torch.Tensor) -> torch.Tensor:
    return batch * 2


def chains(noise: Noisy) -> dict[str, tuple[ChainLoader, bool]]:
    """Loaders of chains, and whether a process reads only its own samples."""
    make, batch = partial(data.chain, list(range(22)), noise), data.Batch(5, collate=as_batch)
    return {
        "loader": (make().loader(batch_size=5, shuffle=True, collate=as_batch), True),
        "order": (make(data.Shuffle(), batch, data.Repeat(2), data.Skip(1)).loader(), True),
        "behind": (make(batch, double).loader(), False),
        "stream": (make(data.ShuffleBuffer(4), batch).loader(), False),
        "lanes": (make(data.SplitByWorker(3), data.Filter(bool), batch).loader(), False),
    }


def test_processes_share_the_batches_of_chains() -> None:
    for name in chains(Noisy()):
        noise = Noisy()
        whole, rows, samples = read(chains(noise)[name][0], 0, 1)
        needed = Counter(noise.seen)
        for size in (2, 3):
            noise = Noisy()
            parts = [read(chains(noise)[name][0], rank, size) for rank in range(size)]
            joined = [
                [row for rank, one in enumerate(step) if rank < rows[at] for row in one]
                for at, step in enumerate(zip(*(part[0] for part in parts), strict=True))
            ]
            assert joined == whole, (name, size)
            assert all(part[1:] == (rows, samples) for part in parts), (name, size)
            if chains(noise)[name][
                1
            ]:  # one more each: the empty share of a batch, and the first draw
                assert len(noise.seen) <= needed.total() + 6 * size, (name, size)


def test_evaluation_reads_each_sample_of_a_chain_once() -> None:
    for name in chains(Noisy()):
        noise = Noisy()
        whole = [one.tolist() for one in chains(noise)[name][0].open_pass(DataPass(3))]
        for size in (2, 3):
            found: list[Any] = [None] * len(whole)
            for rank in range(size):
                one_pass = DataPass(3, share=WholeBatches(rank, size))
                batches = list(chains(noise)[name][0].open_pass(one_pass))
                found[rank::size] = [one.tolist() for one in batches]
            assert found == whole, (name, size)


def endless(noise: Noisy) -> data.Chain:
    """A stream of which each process reads its own items."""
    pipes = (data.Repeat(), data.ShardByRank(), data.SplitByWorker(2), data.FlatMap(noise.twice))
    return data.chain(list(range(8)), data.Shuffle(), *pipes)


def test_each_process_reads_its_own_part_of_an_endless_stream() -> None:
    for size in (2, 4):
        seen = []
        for rank in range(size):
            noise, steps = Noisy(), 8 // size
            loader = endless(noise).loader(batch_size=2 * size, drop_last=True)
            feed = Feed(Task(loader), seed=1, accumulate=1, limit=steps, ranks=(rank, size))
            batches = [batch.tolist() for (batch,) in feed.epoch(0)]
            assert feed.rows == (2 * size,)
            assert feed.samples == steps * 2 * size
            assert [len(batch) for batch in batches] == [2] * steps
            seen.append({item for batch in batches for item in batch})
            feed.start_at(0, 1, 2 * size)
            assert [batch.tolist() for (batch,) in feed.epoch(0)] == batches[1:], (size, rank)
        assert sorted(item for own in seen for item in own) == list(range(8)), size


def test_pipe_that_divides_the_data_again_is_refused() -> None:
    sharded = data.chain(list(range(9)), data.ShardByRank())
    stream = sharded.then(data.Filter(bool))
    forever = endless(Noisy())
    evaluated = DataPass(0, share=WholeBatches(0, 2))
    for chain, size, why in (
        (sharded, 2, "with an index is divided already"),
        (stream, 2, "the stream ends, in one process earlier than in another"),
        (data.chain(data.Mix([stream])), 2, "the stream ends"),
        (forever, 3, "makes no batches that 2 processes can divide"),
        (forever.then(data.Batch(4), double), None, "makes no batches that 2 processes can divide"),
    ):
        with pytest.raises(DataError, match=f"shard_by_rank divides the data, but .*{why}"):
            read(chain.loader(batch_size=size), 0, 2)
    feed = Feed(Task(None), seed=1, accumulate=1, limit=None, ranks=(0, 2))
    for one_pass in (evaluated, DataPass(0)):
        with pytest.raises(DataError, match="an evaluation gives each batch to one process"):
            feed.open(forever.loader(batch_size=2), None, one_pass)


def test_evaluations_share_whole_batches() -> None:
    for size in (1, 2, 3):
        shares = [WholeBatches(rank, size) for rank in range(size)]
        found = [(number, part) for one in shares for number, _, part in one.of_indices("abcde", 2)]
        assert sorted(found) == [(2 + index, part) for index, part in enumerate("abcde")]
        for limit in range(6):
            assert sum(share.limit(limit) for share in shares) == limit, (size, limit)


def test_distributed_sampler_is_refused() -> None:
    points = TensorDataset(torch.arange(10))
    sampler = DistributedSampler(points, num_replicas=2, rank=0)
    with pytest.raises(DataError, match="a DistributedSampler divides the data"):
        read(DataLoader(points, batch_size=2, sampler=sampler), 0, 2)


def test_batch_without_rows_cannot_be_shared() -> None:
    for batch, message in (
        ({"x": torch.ones(3), "y": object()}, "cannot be split between processes: batch.y is a"),
        (object(), "does not show how many samples it has"),
    ):
        with pytest.raises(DataError, match=message):
            read([batch], 0, 2)
