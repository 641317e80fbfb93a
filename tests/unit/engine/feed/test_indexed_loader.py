"""Tests of second loaders: the same bits for any number of workers and from any position on."""

from __future__ import annotations

import random
from itertools import product
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.utils.data import (
    BatchSampler,
    ConcatDataset,
    DataLoader,
    Dataset,
    IterableDataset,
    Sampler,
    Subset,
    TensorDataset,
    WeightedRandomSampler,
    get_worker_info,
)

from epochal.engine.feed.host_generators import HostGenerators
from epochal.engine.feed.loaders import IndexedLoaders
from epochal.engine.feed.sampling_order import DataPass
from epochal.engine.feed.seeded_dataset import are_bitwise_equal

if TYPE_CHECKING:
    from collections.abc import Iterator

LENGTH = 20
ROWS = torch.arange(LENGTH)


class Augmented(Dataset[Tensor]):
    """Draws from every generator."""

    def __len__(self) -> int:
        return LENGTH

    def __getitem__(self, index: int) -> Tensor:
        values = [index, random.random(), np.random.randn(), torch.rand(()).item()]
        return torch.tensor(values, dtype=torch.float64)


class Own(Augmented):
    """Draws from a generator of its own."""

    def __init__(self) -> None:
        self.generator = np.random.default_rng(0)

    def __getitem__(self, index: int) -> Tensor:
        return torch.tensor([index, self.generator.random()])


class Watched(Augmented):
    """Writes down what is read."""

    draws_random = False

    def __init__(self) -> None:
        self.read: list[int] = []

    def __getitem__(self, index: int) -> Tensor:
        self.read.append(index)
        return torch.tensor(index)


class Shuffler(Sampler[int]):
    """A user's sampler, which draws for each index."""

    def __len__(self) -> int:
        return LENGTH

    def __iter__(self) -> Iterator[int]:
        left = list(range(LENGTH))
        while left:
            yield left.pop(random.randrange(len(left)))


class Ragged(Sampler[list[int]]):
    """A user's batch sampler, with batches of several sizes."""

    def __iter__(self) -> Iterator[list[int]]:
        order = torch.randperm(LENGTH).tolist()
        while order:
            size = int(np.random.randint(1, 5))
            yield order[:size]
            order = order[size:]


def jittered(samples: list[Tensor]) -> Tensor:
    return torch.stack(samples) + random.random()


LOADERS: dict[str, dict[str, Any]] = {
    "in order": {"batch_size": 6},
    "shuffled": {"batch_size": 6, "shuffle": True},
    "full batches": {"batch_size": 6, "shuffle": True, "drop_last": True},
    "one by one": {"batch_size": None, "shuffle": True},
    "own collate": {"batch_size": 6, "shuffle": True, "collate_fn": jittered},
    "weighted": {"batch_size": 6, "sampler": WeightedRandomSampler([1.0] * LENGTH, 15)},
    "own sampler": {"batch_size": 6, "sampler": Shuffler()},
    "own batches": {"batch_sampler": Ragged()},
    "own batches of torch": {"batch_sampler": BatchSampler(Shuffler(), 6, drop_last=True)},
}


def loader(kind: str, dataset: Any = None, **options: Any) -> DataLoader[Any]:
    return DataLoader(Augmented() if dataset is None else dataset, **LOADERS[kind], **options)


def read(
    loader: DataLoader[Any], one_pass: DataPass, twins: IndexedLoaders | None = None
) -> list[Tensor]:
    indexed = (twins or IndexedLoaders()).find(loader)
    assert indexed is not None
    return list(indexed.open(one_pass))


def assert_same(one: list[Tensor], other: list[Tensor]) -> None:
    assert len(one) == len(other)
    assert all(map(torch.equal, one, other))


def test_a_pass_begins_at_any_position() -> None:
    for kind in LOADERS:
        whole = read(loader(kind), DataPass(3))
        for start in range(len(whole) + 2):
            random.random()
            assert_same(read(loader(kind), DataPass(3, start=start)), whole[start:])
        assert not torch.equal(read(loader(kind), DataPass(4))[0], whole[0])


def test_the_number_of_workers_does_not_matter() -> None:
    for kind in ["shuffled", "own collate", "one by one", "own batches"]:
        whole = read(loader(kind), DataPass(3))
        assert_same(read(loader(kind, num_workers=1), DataPass(3)), whole)
        assert_same(read(loader(kind, num_workers=3), DataPass(3, start=1)), whole[1:])


def test_workers_that_stay_and_read_far_ahead_do_not_matter_either() -> None:
    options = {"num_workers": 2, "persistent_workers": True, "prefetch_factor": 5}
    twins, kept = IndexedLoaders(), loader("shuffled", **options)
    epochs = [read(kept, DataPass(seed), twins) for seed in (1, 2)]
    for seed, epoch in zip((1, 2), epochs, strict=True):
        assert_same(epoch, read(loader("shuffled"), DataPass(seed)))
    indexed = twins.find(kept)
    assert indexed is not None
    assert_same(list(indexed.open(DataPass(1, start=2))), epochs[0][2:])


def test_global_generators_are_restored() -> None:
    generators = HostGenerators()
    before = generators.take()
    for kind in LOADERS:
        indexed = IndexedLoaders().find(one := loader(kind))
        assert indexed is not None, kind
        for _ in indexed.open(DataPass(3)):
            assert before.equals(generators.take()), kind
        assert one.generator is None
    read(loader("shuffled", num_workers=1), DataPass(3))
    assert before.equals(generators.take())


def test_skipped_samples_are_not_read() -> None:
    for kind in LOADERS:
        dataset = Watched()
        batches = read(loader(kind, dataset), DataPass(3, start=2))
        assert len(dataset.read) == sum(batch.numel() for batch in batches), kind


def test_the_loader_is_not_changed() -> None:
    for workers in [0, 1]:
        generator = torch.Generator().manual_seed(1)
        one = loader("shuffled", generator=generator, num_workers=workers)
        before, state = dict(vars(one)), generator.get_state()
        read(one, DataPass(3))
        assert vars(one) == before, workers
        assert torch.equal(generator.get_state(), state), workers


def test_two_passes_at_a_time_do_not_disturb_each_other() -> None:
    twins, one = IndexedLoaders(), loader("own sampler")
    alone = read(one, DataPass(1), twins)
    indexed = twins.find(one)
    assert indexed is not None
    together = []
    for batch in indexed.open(DataPass(1)):
        together.append(batch)
        list(indexed.open(DataPass(2)))
    assert_same(together, alone)


def test_data_that_draw_nothing_are_read_by_the_loader_alone() -> None:
    one = DataLoader(TensorDataset(ROWS), batch_size=6, num_workers=1)
    assert [batch[0].tolist() for batch in read(one, DataPass(3))] == [
        batch[0].tolist() for batch in DataLoader(TensorDataset(ROWS), batch_size=6)
    ]
    single = DataLoader(TensorDataset(ROWS), batch_size=None)
    assert [int(batch[0]) for batch in read(single, DataPass(3, start=18))] == [18, 19]


class Rows(Dataset[Any]):
    """Rows as dicts, several at once."""

    def __len__(self) -> int:
        return LENGTH

    def __getitem__(self, index: int) -> dict[str, Any]:
        return {"row": ROWS[index], "name": str(index)}

    def __getitems__(self, indices: list[int]) -> list[dict[str, Any]]:
        return [self[index] for index in indices]


class Short(Rows):
    """Ends a pass as some do, though its length says otherwise."""

    __getitems__ = None  # type: ignore[assignment]  # as if it had none

    def __getitem__(self, index: int) -> dict[str, Any]:
        if index > 13:
            raise StopIteration
        return super().__getitem__(index)


def test_batches_read_here_are_those_of_the_loader() -> None:
    joined = ConcatDataset([Rows(), Short()])
    datasets: list[Any] = [Rows(), Short(), Subset(Rows(), range(3, 12)), joined, [*range(9)]]
    for dataset, size, draws in product(datasets, [6, None, 3], [True, False]):
        if isinstance(dataset, Rows):
            dataset.draws_random = draws  # type: ignore[attr-defined]  # as a user would
        one = DataLoader(dataset, batch_size=size)
        indexed = IndexedLoaders().find(one)
        assert indexed is not None
        batches, expected = list(indexed.open(DataPass(3))), list(one)
        assert len(batches) == len(expected) > 0
        assert are_bitwise_equal(batches, expected), (dataset, size, draws)


@pytest.mark.parametrize("workers", [0, 1])
def test_a_dataset_with_its_own_generator_is_named_once(
    workers: int, caplog: pytest.LogCaptureFixture
) -> None:
    twins = IndexedLoaders()
    for _ in range(2):
        batches = read(loader("shuffled", Own(), num_workers=workers), DataPass(3), twins)
        assert [len(batch) for batch in batches] == [6, 6, 6, 2]
    (record,) = caplog.records
    assert record.getMessage().startswith(
        "data: one sample of Own, read twice with the same seed, differed: it has its own generator"
    )


def test_datasets_that_draw_as_they_should_are_not_named(caplog: pytest.LogCaptureFixture) -> None:
    for kind in LOADERS:
        read(loader(kind), DataPass(3))
    assert not caplog.records


class Prepared(Augmented):
    mark = 0

    def __getitem__(self, index: int) -> Tensor:
        return torch.tensor(self.mark)


def prepare(number: int) -> None:
    info = get_worker_info()
    assert info is not None
    assert isinstance(info.dataset, Prepared)
    info.dataset.mark = number + 7


def test_the_function_that_starts_workers_finds_the_dataset_that_it_knows() -> None:
    one = loader("in order", Prepared(), num_workers=1, worker_init_fn=prepare)
    assert {int(value) for batch in read(one, DataPass(3)) for value in batch} == {7}


def test_an_indexed_loader_is_reused_while_the_loader_is_unchanged() -> None:
    twins, one = IndexedLoaders(), loader("shuffled")
    indexed = twins.find(one)
    assert twins.find(one) is indexed
    one.collate_fn = jittered
    assert twins.find(one) is not indexed
    assert twins.find(loader("shuffled")) is not twins.find(one)


def test_a_loader_whose_workers_were_taken_away_is_read_in_this_process() -> None:
    one = loader("shuffled", num_workers=2, prefetch_factor=3, persistent_workers=True)
    one.num_workers = 0
    assert_same(read(one, DataPass(3)), read(loader("shuffled"), DataPass(3)))


def test_loaders_of_which_little_is_known_have_none() -> None:
    class Stream(IterableDataset[int]):
        def __iter__(self) -> Iterator[int]:
            return iter(range(3))

    class Changed(DataLoader[Any]):
        def __iter__(self) -> Any:
            return iter([1])

    for other in ([1], DataLoader(Stream()), Changed(TensorDataset(ROWS))):
        assert IndexedLoaders().find(other) is None
