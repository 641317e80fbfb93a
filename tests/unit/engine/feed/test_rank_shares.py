"""What each process reads of a pass."""

from __future__ import annotations

import pytest
import torch
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler

from epochal.engine.feed.feed import Feed
from epochal.engine.feed.rank_shares import SampleSlices, WholeBatches
from epochal.errors import DataError


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
    data = list(range(11))
    for size in (1, 2, 3, 4):
        shares = [SampleSlices(rank, size) for rank in range(size)]
        parts = [data[share.bounds(len(data))] for share in shares]
        assert [one for part in parts for one in part] == data, size
        assert max(map(len, parts)) - min(map(len, parts)) <= 1, size


def test_process_without_samples_reads_one_that_does_not_count() -> None:
    shares = [SampleSlices(rank, 4) for rank in range(4)]
    assert [share.is_empty(2) for share in shares] == [False, False, True, True]
    assert shares[3].bounds(2) == slice(0, 1)


def test_processes_share_the_batches_of_every_kind_of_loader() -> None:
    data = TensorDataset(torch.arange(10))
    for loader in (
        DataLoader(data, batch_size=4, shuffle=True),
        DataLoader(data, batch_size=4),
        DataLoader(list(range(10)), batch_size=4, shuffle=True),
        Stream(),
    ):
        whole, rows, samples = read(loader, 0, 1)
        parts = [read(loader, rank, 2) for rank in range(2)]
        joined = [one + other for one, other in zip(parts[0][0], parts[1][0], strict=True)]
        assert joined == whole, loader
        assert all(part[1:] == (rows, samples) for part in parts), loader
        assert sum(rows) == samples == sum(map(len, whole)), loader


def test_evaluations_share_whole_batches() -> None:
    for size in (1, 2, 3):
        shares = [WholeBatches(rank, size) for rank in range(size)]
        found = [(number, part) for one in shares for number, _, part in one.of_indices("abcde", 2)]
        assert sorted(found) == [(2 + index, part) for index, part in enumerate("abcde")]
        for limit in range(6):
            assert sum(share.limit(limit) for share in shares) == limit, (size, limit)


def test_distributed_sampler_is_refused() -> None:
    data = TensorDataset(torch.arange(10))
    sampler = DistributedSampler(data, num_replicas=2, rank=0)
    with pytest.raises(DataError, match="a DistributedSampler divides the data"):
        read(DataLoader(data, batch_size=2, sampler=sampler), 0, 2)


def test_batch_without_rows_cannot_be_shared() -> None:
    for batch, message in (
        ({"x": torch.ones(3), "y": object()}, "cannot be split between processes: batch.y is a"),
        (object(), "does not show how many samples it has"),
    ):
        with pytest.raises(DataError, match=message):
            read([batch], 0, 2)
