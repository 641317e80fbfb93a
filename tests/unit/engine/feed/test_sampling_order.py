"""Tests of orders: those of torch's samplers, from any position on, without a trace."""

from __future__ import annotations

import random
from itertools import islice
from typing import TYPE_CHECKING, Any

import torch
from torch.utils.data import (
    BatchSampler,
    DataLoader,
    RandomSampler,
    Sampler,
    SequentialSampler,
    SubsetRandomSampler,
    TensorDataset,
    WeightedRandomSampler,
)

from epochal.engine.feed.host_generators import HostGenerators
from epochal.engine.feed.sampling_order import (
    DataPass,
    derive_pass_seeds,
    draws_each_index_once,
    find_indices,
    find_sampler,
    fixed_order,
    is_standard_dataloader,
    iterate_seeded,
    list_sample_indices,
    set_sampler_epoch,
    split_indices,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

DATA = TensorDataset(torch.arange(11))


def samplers() -> dict[str, Any]:
    return {
        "in order": SequentialSampler(DATA),
        "shuffled": RandomSampler(DATA),
        "fewer": RandomSampler(DATA, num_samples=4),
        "more": RandomSampler(DATA, num_samples=30),
        "replaced": RandomSampler(DATA, replacement=True, num_samples=40),
        "subset": SubsetRandomSampler([1, 5, 7]),
        "weighted": WeightedRandomSampler([1.0] * 11, 20),
    }


def test_indices_are_those_that_the_sampler_draws_from_the_seed() -> None:
    for kind in samplers():
        sampler = samplers()[kind]
        found = find_indices(sampler, 5)
        assert found is not None, kind
        assert getattr(sampler, "generator", None) is None, kind
        if hasattr(sampler, "generator"):
            sampler.generator = torch.Generator().manual_seed(5)
        assert [int(index) for index in found] == list(sampler), kind


def test_only_samplers_that_repeat_nothing_name_samples_by_index() -> None:
    for kind in samplers():
        assert draws_each_index_once(samplers()[kind]) == (
            kind in ("in order", "shuffled", "fewer")
        )


def test_indices_of_user_samplers_are_unknown() -> None:
    class Backwards(SequentialSampler):
        def __iter__(self) -> Iterator[int]:
            return reversed(range(len(self)))

    for sampler in (Backwards(DATA), [3, 1], BatchSampler(RandomSampler(DATA), 2, False)):
        assert find_indices(sampler, 0) is None
        assert not draws_each_index_once(sampler)


def test_batches_are_those_of_torch_from_any_position_on() -> None:
    for length in [0, 1, 6, 11]:
        for drop_last in [True, False]:
            whole = list(BatchSampler(range(length), 3, drop_last))
            for start in range(len(whole) + 2):
                for indices in (range(length), list(range(length))):
                    assert (
                        list(split_indices(indices, 3, start, drop_last=drop_last)) == whole[start:]
                    )
                    assert (
                        list(split_indices(indices, None, start, drop_last=False))
                        == list(range(length))[start:]
                    )


def test_every_sample_comes_once_in_an_epoch_however_often_it_is_resumed() -> None:
    for seed in range(20):
        draw = random.Random(seed)
        length, size = draw.randint(1, 10_000), draw.randint(1, 100)
        indices = find_indices(RandomSampler(range(length)), seed)
        assert indices is not None, seed
        given: list[int] = []
        position = 0
        while len(given) < length:
            batches = split_indices(indices, size, position, drop_last=False)
            for batch in islice(batches, draw.randint(1, 1 + length // size)):
                given += batch
                position += 1
        assert given == indices, seed
        assert sorted(given) == list(range(length)), seed


class Own(Sampler[int]):
    """Draws its order from the global generators, and more of them on the way."""

    def __iter__(self) -> Iterator[int]:
        for index in torch.randperm(8).tolist():
            yield index + random.choice([0, 100])


def test_any_sampler_repeats_its_order_from_any_position_on() -> None:
    generators = HostGenerators()
    whole = list(iterate_seeded(Own(), 3, 0, generators))
    before = generators.take()
    for start in range(10):
        assert list(iterate_seeded(Own(), 3, start, generators)) == whole[start:]
    assert list(iterate_seeded(Own(), 4, 0, generators)) != whole
    assert before.equals(generators.take())


def test_a_source_that_begins_later_draws_as_if_it_had_begun_before() -> None:
    def draws() -> Iterator[float]:
        while True:
            yield random.random()

    def take(count: int, *, start: int, first: int) -> list[float]:
        source = iterate_seeded(draws(), 0, start, HostGenerators(), first=first)
        return [next(source) for _ in range(count)]

    assert take(3, start=2, first=2) == take(5, start=0, first=0)[2:]


def test_set_epoch_is_called_if_there_is_an_epoch() -> None:
    class Told(Own):
        epoch = 7

        def set_epoch(self, epoch: int) -> None:
            self.epoch = epoch

    sampler = Told()
    loader = DataLoader(DATA, sampler=sampler)
    set_sampler_epoch(loader, None)
    assert sampler.epoch == 7
    set_sampler_epoch(loader, 2)
    assert sampler.epoch == 2


def test_a_loader_without_changes_is_as_good_as_that_of_torch() -> None:
    class Named(DataLoader[Any]):
        """Only has another constructor, and a method more."""

        def __init__(self) -> None:
            super().__init__(DATA, batch_size=3)

        def describe(self) -> str:
            return "named"

    class Changed(DataLoader[Any]):
        def __iter__(self) -> Any:
            return iter([1, 2])

    class Below(Changed):
        pass

    assert is_standard_dataloader(DataLoader(DATA))
    assert is_standard_dataloader(Named())
    assert not is_standard_dataloader(Changed(DATA))
    assert not is_standard_dataloader(Below(DATA))
    assert not is_standard_dataloader([1, 2])


def test_the_sampler_that_matters_is_found() -> None:
    shuffled = DataLoader(DATA, batch_size=3, shuffle=True, drop_last=True)
    assert find_sampler(shuffled) == (shuffled.sampler, 3, True)
    single = DataLoader(DATA, batch_size=None)
    assert find_sampler(single) == (single.sampler, None, False)
    own = DataLoader(DATA, batch_size=3, sampler=Own())
    assert find_sampler(own) == (own.batch_sampler, None, False)


def test_seeds_of_samples_batches_and_samplers_differ() -> None:
    assert len({*derive_pass_seeds(DataPass(1)), *derive_pass_seeds(DataPass(2)), 1, 2}) == 8
    assert derive_pass_seeds(DataPass(1, epoch=3, start=4)) == derive_pass_seeds(DataPass(1))


def test_an_order_for_a_while_leaves_the_generators_of_a_loader_as_they_were() -> None:
    generator = torch.Generator().manual_seed(3)
    one = DataLoader(DATA, batch_size=2, shuffle=True, generator=generator)
    state = generator.get_state()
    with fixed_order(one, 7):
        first = [batch[0].tolist() for batch in one]
    with fixed_order(one, 7):
        assert [batch[0].tolist() for batch in one] == first
    assert one.generator is generator
    assert torch.equal(generator.get_state(), state)


def test_the_samples_of_batches_are_known_without_reading_them() -> None:
    for drop_last in [True, False]:
        for kind in samplers():
            loader = DataLoader(DATA, batch_size=2, sampler=samplers()[kind], drop_last=drop_last)
            with fixed_order(loader, 5):
                whole = [batch[0].tolist() for batch in loader]
            for first in range(len(whole)):
                found = list_sample_indices(loader, DataPass(5), range(first, first + 2))
                assert found == whole[first : first + 2], kind


def test_without_batches_each_sample_is_one() -> None:
    loader = DataLoader(DATA, batch_size=None)
    assert list_sample_indices(loader, DataPass(5), range(3, 5)) == [[3], [4]]


def test_the_samples_of_ones_own_sampler_are_unknown() -> None:
    loader = DataLoader(DATA, batch_sampler=[[1, 2], [0]])
    assert list_sample_indices(loader, DataPass(5), range(1)) is None
