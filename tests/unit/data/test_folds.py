"""Tests of cross-validation: folds, stratification, and data that cannot be split."""

from __future__ import annotations

from collections import Counter
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.utils.data import (
    DataLoader,
    Dataset,
    IterableDataset,
    Subset,
    TensorDataset,
    WeightedRandomSampler,
)

import epochal as ep
from epochal.data.datasets import Repeated
from epochal.data.folds import assign_folds, get_labels, select_samples, split_loader
from epochal.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Iterator


@given(st.integers(2, 9), st.integers(0, 60), st.integers(0, 2**60))
def test_every_sample_is_held_out_exactly_once(folds: int, more: int, seed: int) -> None:
    count = folds + more
    assigned = assign_folds(count, folds, seed=seed)
    assert sorted(index for fold in assigned for index in fold) == list(range(count))
    assert max(map(len, assigned)) - min(map(len, assigned)) <= 1
    assert assigned == assign_folds(count, folds, seed=seed)


@given(st.lists(st.sampled_from("abcd"), min_size=5, max_size=60), st.integers(2, 5))
def test_labels_are_spread_over_the_folds(labels: list[str], folds: int) -> None:
    assigned = assign_folds(len(labels), folds, seed=1, labels=labels)
    assert sorted(index for fold in assigned for index in fold) == list(range(len(labels)))
    assert max(map(len, assigned)) - min(map(len, assigned)) <= 1
    for label in set(labels):
        counts = [Counter(labels[index] for index in fold)[label] for fold in assigned]
        assert max(counts) - min(counts) <= 1


def test_the_seed_decides_the_folds() -> None:
    assert assign_folds(20, 4, seed=1) != assign_folds(20, 4, seed=2)
    assert assign_folds(20, 4, seed=1)[0] != list(range(0, 20, 4))


def samples(loader: DataLoader[Any]) -> list[int]:
    return sorted(int(value) for batch in loader for value in batch[0])


def test_a_fold_validates_its_samples_and_trains_on_the_others() -> None:
    loader = DataLoader(TensorDataset(torch.arange(10)), batch_size=3, shuffle=True)
    held_out = []
    for number in (1, 2, 3):
        fold = split_loader(loader, number, 3, seed=5)
        assert sorted(samples(fold.train) + samples(fold.val)) == list(range(10))
        assert type(fold.train.sampler).__name__ == "RandomSampler"
        assert type(fold.val.sampler).__name__ == "SequentialSampler"
        held_out += samples(fold.val)
    assert sorted(held_out) == list(range(10))


def test_loaders_of_a_fold_are_like_the_one_they_come_from() -> None:
    def collate(batch: list[Any]) -> Any:
        return torch.tensor(batch)

    loader = DataLoader(
        list(range(10)),  # type: ignore[arg-type]  # torch accepts a list
        batch_size=4,
        drop_last=True,
        collate_fn=collate,
        num_workers=1,
        persistent_workers=True,
    )
    fold = split_loader(loader, 1, 2, seed=0)
    assert (fold.train.batch_size, fold.train.drop_last, fold.train.num_workers) == (4, True, 1)
    assert (fold.val.batch_size, fold.val.drop_last) == (4, False)
    assert fold.train.collate_fn is collate is fold.val.collate_fn
    assert fold.train.persistent_workers
    assert not fold.val.persistent_workers


def test_rows_of_tensors_stay_tensors() -> None:
    data = ep.data.Tensors(x=torch.arange(4), y=torch.arange(4) * 2)
    chosen = select_samples(data, [1, 3])
    assert type(chosen) is ep.data.Tensors
    assert (chosen.tensors[1].tolist(), len(data)) == ([2, 6], 4)
    assert type(select_samples(TensorDataset(torch.arange(4)), [0])) is TensorDataset
    assert type(select_samples([1, 2, 3], [0])) is Subset


def test_repetitions_of_a_sample_are_in_one_part_of_a_fold() -> None:
    loader = DataLoader(Repeated(list(range(6)), 3), batch_size=2)
    fold = split_loader(loader, 1, 3, seed=0)
    trained = [int(one) for batch in fold.train for one in batch]
    held_out = [int(one) for batch in fold.val for one in batch]
    assert set(Counter(trained).values()) == {3}
    assert set(Counter(held_out).values()) == {1}
    assert not {*trained} & {*held_out}


class Pictures(Dataset):  # type: ignore[type-arg]  # reason: torch's generic at run time
    def __init__(self, kind: str) -> None:
        self.kind = kind
        if kind == "attribute":
            self.targets = [0, 1, 1]

    def __len__(self) -> int:
        return 3

    def __getitem__(self, index: int) -> Any:
        label = torch.tensor([0, 1, 1][index])
        kinds = {"dict": {"label": label}, "tuple": (0.5, label)}
        return kinds.get(self.kind, SimpleNamespace(label=label))


def test_labels_are_found_in_the_data_or_in_its_samples() -> None:
    for dataset, where in (
        (Pictures("attribute"), "targets"),
        (Pictures("dict"), "label"),
        (Pictures("tuple"), 1),
        (Pictures("tuple"), -1),
        (Pictures("object"), "label"),
        (ep.data.Tensors(x=torch.rand(3), label=torch.tensor([0, 1, 1])), "label"),
        (ep.data.Tensors(torch.rand(3), torch.tensor([0, 1, 1])), 1),
        (TensorDataset(torch.rand(3), torch.tensor([0, 1, 1])), 1),
    ):
        assert get_labels(dataset, where) == [0, 1, 1]


def test_labels_that_are_not_there_are_an_error() -> None:
    short = Pictures("attribute")
    short.targets = [0]
    for dataset, where, message in (
        (Pictures("dict"), "lable", r"has 'lable'; a sample has the keys label"),
        (Pictures("tuple"), 7, r"has 7; a sample has a tuple"),
        (TensorDataset(torch.rand(3, 2)), 0, r"0 is a list, not a single label"),
        (short, "targets", "'targets' has 1 labels, and there are 3 samples"),
    ):
        with pytest.raises(ConfigError, match=rf"train\.stratify: .*{message}"):
            get_labels(dataset, where)


def test_a_label_with_fewer_samples_than_folds_gives_a_warning(
    caplog: pytest.LogCaptureFixture,
) -> None:
    loader = DataLoader(TensorDataset(torch.tensor([0, 0, 0, 1])), batch_size=2)
    split_loader(loader, 1, 3, seed=0, stratify=0)
    assert "label 1 has 1 samples, fewer than 3 folds" in caplog.text


class Stream(IterableDataset):  # type: ignore[type-arg]  # reason: torch's generic at run time
    def __iter__(self) -> Iterator[int]:
        return iter(range(7))


def weighted() -> DataLoader[Any]:
    data = TensorDataset(torch.arange(4))
    return DataLoader(data, sampler=WeightedRandomSampler([1.0] * 4, num_samples=4))


def test_data_that_cannot_be_split_is_refused() -> None:
    for loader, message in (
        (DataLoader(TensorDataset(torch.arange(3))), "4 folds of 3 samples(.|\n)*at most 3"),
        (DataLoader(Stream()), "read by index, and a Stream is iterable"),
        ([1, 2, 3], "as a DataLoader, got a list"),
        (weighted(), "a custom sampler, a WeightedRandomSampler"),
    ):
        with pytest.raises(ConfigError, match=rf"train\.folds: .*{message}"):
            split_loader(loader, 1, 4, seed=0)
