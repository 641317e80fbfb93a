"""Tests of reading under seeds: what a sample is depends on its seed and on nothing else."""

from __future__ import annotations

import pickle
import random
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.utils.data import (
    ConcatDataset,
    Dataset,
    StackDataset,
    Subset,
    TensorDataset,
    default_collate,
    default_convert,
)

import epochal as ep
from epochal.engine.feed.host_generators import HostGenerators, mix_seed
from epochal.engine.feed.seeded_dataset import (
    DatasetTraits,
    ReadRequest,
    SeededDataset,
    WorkerInit,
    are_bitwise_equal,
    may_collate_draw,
    may_draw,
)

ROWS = torch.arange(8.0)


class Noisy(Dataset[Tensor]):
    """Draws from every generator, but only for some samples."""

    def __init__(self, *, quiet_below: int = 0) -> None:
        self.quiet_below = quiet_below
        self.reads = 0

    def __len__(self) -> int:
        return 8

    def __getitem__(self, index: int) -> Tensor:
        self.reads += 1
        if index < self.quiet_below:
            return torch.full((4,), float(index), dtype=torch.float64)
        values = [index, random.random(), np.random.rand(), torch.rand(()).item()]
        return torch.tensor(values, dtype=torch.float64)


class Together(Noisy):
    def __getitems__(self, indices: list[int]) -> list[Tensor]:
        return [self[index] for index in indices]


class Own(Noisy):
    """Has a generator of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.random = random.Random(0)

    def __getitem__(self, index: int) -> Tensor:
        return torch.tensor([index, self.random.random()])


def reader(dataset: Any, collate: Any = default_collate) -> SeededDataset:
    return SeededDataset(dataset, collate, is_stacked=True)


def ticket(*indices: int, seed: int = 5, **options: Any) -> ReadRequest:
    return ReadRequest(list(indices), mix_seed(seed, 77), seed, **options)


def test_a_sample_is_the_same_in_any_batch() -> None:
    whole = reader(Noisy()).__getitems__(ticket(*range(8)))
    for index in range(8):
        assert torch.equal(reader(Noisy()).__getitems__(ticket(index))[0], whole[index])
    assert torch.equal(reader(Noisy()).__getitems__(ticket(6, 2, 4)), whole[[6, 2, 4]])
    other = reader(Noisy()).__getitems__(ticket(*range(8), seed=6))
    assert not (other[:, 1:] == whole[:, 1:]).any()


def test_samples_and_generators_get_random_numbers_of_their_own() -> None:
    drawn = reader(Noisy()).__getitems__(ticket(*range(8)))[:, 1:]
    assert len(set(drawn.flatten().tolist())) == drawn.numel()


def test_samples_that_may_repeat_are_seeded_by_position() -> None:
    twice = ReadRequest([3, 3], 1, None)
    one, other = reader(Noisy()).__getitems__(twice)
    assert not torch.equal(one, other)
    assert torch.equal(reader(Noisy()).__getitems__(twice)[1], other)


def test_global_generators_are_restored() -> None:
    for kind in [Noisy, Together]:
        generators = HostGenerators()
        one = reader(kind())
        before = generators.take()
        for _ in range(3):
            one.__getitems__(ticket(*range(8)))
            assert before.equals(generators.take()), kind


def test_a_dataset_that_reads_batches_at_once_is_seeded_by_the_batch() -> None:
    whole = ticket(*range(8))
    one = reader(Together()).__getitems__(whole)
    random.random()
    assert torch.equal(reader(Together()).__getitems__(whole), one)
    assert not torch.equal(reader(Together()).__getitems__(whole._replace(seed=3)), one)


def test_a_part_of_a_dataset_is_read_sample_by_sample_if_the_dataset_is() -> None:
    whole = ticket(*range(8))
    for kind in (Subset(Noisy(), range(8)), Subset(Subset(Noisy(), range(8)), range(8))):
        one = reader(kind).__getitems__(whole)
        assert torch.equal(one, reader(Noisy()).__getitems__(whole))
    stacked = reader(StackDataset(Noisy(), ROWS.tolist())).__getitems__(whole)[0]
    assert torch.equal(stacked, reader(Noisy()).__getitems__(whole))
    together = reader(Subset(Together(), range(8))).__getitems__(whole)
    assert torch.equal(together, reader(Together()).__getitems__(whole))


def test_collating_is_seeded_by_the_batch() -> None:
    def shuffled(samples: list[Any]) -> list[Any]:
        return random.sample(samples, len(samples))

    whole = ticket(*range(8))
    one = reader(ROWS.tolist(), shuffled).__getitems__(whole)
    assert sorted(one) == ROWS.tolist() != one
    random.random()
    assert reader(ROWS.tolist(), shuffled).__getitems__(whole) == one
    assert reader(ROWS.tolist(), shuffled).__getitems__(whole._replace(seed=3)) != one


def test_one_draw_late_in_a_batch_changes_no_sample() -> None:
    seeded = reader(Noisy(quiet_below=6))
    seeded.is_random = True
    expected = seeded.__getitems__(ticket(*range(8)))
    late = reader(Noisy(quiet_below=6))
    assert torch.equal(late.__getitems__(ticket(*range(8))), expected)
    assert late.is_random
    assert late.dataset.reads == 16  # once to see it, once under the seeds of the samples


def test_a_batch_without_a_draw_is_read_once() -> None:
    quiet = reader(Noisy(quiet_below=8))
    for _ in range(2):
        quiet.__getitems__(ticket(*range(8)))
    assert quiet.dataset.reads == 16
    assert not quiet.is_random


def test_a_spare_number_of_the_run_is_no_draw_of_the_dataset() -> None:
    np.random.seed(1)
    np.random.randn()
    quiet = reader(Noisy(quiet_below=8))
    quiet.__getitems__(ticket(*range(8)))
    assert not quiet.is_random
    assert quiet.dataset.reads == 8


def test_an_error_passes_and_leaves_no_trace() -> None:
    generators = HostGenerators()
    before = generators.take()
    for indices in (range(8), range(2)):
        with pytest.raises(IndexError):
            reader(ROWS.tolist(), list).__getitems__(ticket(*indices, 99))
    assert before.equals(generators.take())


def test_an_error_that_other_random_numbers_would_not_cause_is_not_raised() -> None:
    class Picky(Noisy):
        def __getitem__(self, index: int) -> Tensor:
            if torch.rand(()).item() != expected[index]:
                raise ValueError("drawn without a seed")
            return torch.zeros(1)

    expected = reader(Noisy()).__getitems__(ticket(*range(8)))[:, 3].tolist()
    reader(Picky()).__getitems__(ticket(*range(8)))


def test_the_seed_of_torch_is_that_of_the_batch_or_the_sample() -> None:
    class Asking(Noisy):
        def __getitem__(self, index: int) -> Tensor:
            return torch.tensor(torch.initial_seed() % 1000)

    torch.manual_seed(1)
    one = reader(Asking()).__getitems__(ticket(*range(8)))
    torch.manual_seed(2)
    assert torch.equal(reader(Asking()).__getitems__(ticket(*range(8))), one)


def test_a_single_sample_is_converted_but_not_stacked() -> None:
    single = SeededDataset(Noisy(), default_convert, is_stacked=False)
    one = single.__getitems__(ReadRequest(3, 9, 5))
    assert torch.equal(one, reader(Noisy()).__getitems__(ticket(3))[0])


def test_a_first_batch_comes_with_findings() -> None:
    for dataset, findings in [
        (Noisy(), DatasetTraits(is_random=True, is_nondeterministic=False)),
        (Noisy(quiet_below=8), DatasetTraits(is_random=False, is_nondeterministic=False)),
        (Together(), DatasetTraits(is_random=True, is_nondeterministic=False)),
        (Own(), DatasetTraits(is_random=False, is_nondeterministic=True)),
    ]:
        batch, found = reader(dataset).__getitems__(ticket(*range(8), is_first=True))
        assert len(batch) == 8, dataset
        assert found == findings, dataset


def test_a_sample_that_cannot_be_read_a_second_time_is_no_error() -> None:
    class Once(Noisy):
        def __getitem__(self, index: int) -> Tensor:
            self.reads += 1
            if self.reads > 8:
                raise ValueError("read already")
            return torch.zeros(1)

    _, found = reader(Once()).__getitems__(ticket(*range(8), is_first=True))
    assert not found.is_nondeterministic


def test_a_reader_can_go_to_another_process() -> None:
    one = reader(Noisy())
    expected = one.__getitems__(ticket(*range(8)))
    assert torch.equal(pickle.loads(pickle.dumps(one)).__getitems__(ticket(*range(8))), expected)


class Honest(Noisy):
    draws_random = False


class Flipped(TensorDataset):
    pass


def test_datasets_that_are_known_not_to_draw() -> None:
    for dataset in [
        [1, 2],
        (1, 2),
        range(3),
        ROWS,
        TensorDataset(ROWS),
        ep.data.Tensors(ROWS),
        Honest(),
        Subset(TensorDataset(ROWS), [1]),
        ConcatDataset([TensorDataset(ROWS), Honest()]),
        StackDataset(ROWS, [*range(8)]),
        StackDataset(x=ROWS, y=TensorDataset(ROWS)),
    ]:
        assert not may_draw(dataset)


def test_datasets_of_which_nothing_is_known_may_draw() -> None:
    for dataset in [
        Noisy(),
        Flipped(ROWS),
        Subset(Noisy(), [1]),
        ConcatDataset([TensorDataset(ROWS), Noisy()]),
        StackDataset(ROWS, Noisy()),
        StackDataset(x=ROWS, y=Noisy()),
    ]:
        assert may_draw(dataset)


def test_collating_may_draw_unless_it_is_known() -> None:
    def still(samples: list[Any]) -> list[Any]:
        return samples

    data = ep.data.Tensors(ROWS)
    assert may_collate_draw(still, ROWS)
    assert may_collate_draw(data.collate, ROWS)
    assert not may_collate_draw(data.collate, data)
    assert not may_collate_draw(default_collate, ROWS)
    assert not may_collate_draw(default_convert, ROWS)
    still.draws_random = False  # type: ignore[attr-defined]  # functions have attributes too
    assert not may_collate_draw(still, ROWS)


def test_outside_of_a_worker_a_start_only_calls_the_function() -> None:
    numbers: list[int] = []
    WorkerInit(numbers.append)(3)
    WorkerInit(None)(4)
    assert numbers == [3]


@dataclass
class Sample:
    x: object
    y: int = 0


NAN = float("nan")
SAME: list[tuple[Any, Any]] = [
    (torch.ones(2, 3), torch.ones(2, 3)),
    (torch.tensor(NAN), torch.tensor(NAN)),
    (torch.zeros(0, 3), torch.zeros(0, 3)),
    (torch.ones(3, dtype=torch.complex64).conj(), torch.ones(3, dtype=torch.complex64).conj()),
    (torch.eye(2).to_sparse(), torch.eye(2).to_sparse()),
    (np.array([1.0, NAN]), np.array([1.0, NAN])),
    (np.float32(1), np.float32(1)),
    (np.array([None, "a"], dtype=object), np.array([None, "a"], dtype=object)),
    (NAN, NAN),
    ({"a": [1, (2.0, "x", b"y", None, True)]}, {"a": [1, (2.0, "x", b"y", None, True)]}),
    (Sample(torch.ones(1)), Sample(torch.ones(1))),
    (object(), object()),
    ([], []),
]
OTHER: list[tuple[Any, Any]] = [
    (torch.zeros(2), torch.ones(2)),
    (torch.zeros(2), -torch.zeros(2)),
    (torch.zeros(2), torch.zeros(2, 1)),
    (torch.zeros(2), torch.zeros(2, dtype=torch.float64)),
    (np.zeros(2), np.ones(2)),
    (np.zeros(2), np.zeros(3)),
    (np.zeros(2, dtype=np.int32), np.zeros(2, dtype=np.int64)),
    (np.array([None, "a"], dtype=object), np.array([None, "b"], dtype=object)),
    (0.0, -0.0),
    (1, 1.0),
    ("a", "b"),
    ([1, 2], [1]),
    ([1], (1,)),
    ({"a": 1}, {"b": 1}),
    ({"a": 1, "b": 2}, {"a": 1, "b": 3}),
    (Sample(1), Sample(1, y=2)),
]


def test_equal_bits_are_the_same() -> None:
    for one, other in SAME:
        assert are_bitwise_equal(one, other)


def test_any_other_bit_is_noticed() -> None:
    for one, other in OTHER:
        assert not are_bitwise_equal(one, other)
