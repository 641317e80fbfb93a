"""Arrays in memory, and repeated samples."""

from __future__ import annotations

import random
import subprocess
import sys
from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import (
    ConcatDataset,
    DataLoader,
    Dataset,
    IterableDataset,
    TensorDataset,
    random_split,
)

import epochal as ep
from epochal.config import parse_duration
from epochal.data.datasets import Repeated, Tensors
from epochal.data.loader import LoaderOptions, build_loader
from epochal.engine import Environment, Options, Parts
from epochal.engine.create_run import create_run
from epochal.engine.feed.feed import Feed
from epochal.engine.interfaces.options import TrainOptions
from epochal.errors import ConfigError, DataError
from epochal.testing import TinyTask
from resume import assert_resumes_everywhere

if TYPE_CHECKING:
    from collections.abc import Iterator

X = torch.arange(14.0).reshape(7, 2)
Y = torch.arange(7)


def as_lists(batches: Any) -> list[Any]:
    return [
        {name: part.tolist() for name, part in batch.items()}
        if isinstance(batch, dict)
        else [part.tolist() for part in batch]
        for batch in batches
    ]


def test_ep_data_is_imported_lazily() -> None:
    assert ep.data.Tensors is Tensors
    code = "import sys, epochal; assert 'torch' not in sys.modules; epochal.data.Tensors"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_a_sample_is_a_tuple_by_position_and_a_dict_by_name() -> None:
    first, second = Tensors(X, Y)[3]
    assert (first.tolist(), int(second)) == ([6.0, 7.0], 3)
    sample = Tensors(x=X, label=Y)[-1]
    assert sample["x"].tolist() == [12.0, 13.0]
    assert int(sample["label"]) == 6
    assert len(Tensors(X)) == 7


def test_gather_gives_the_batch_of_some_samples() -> None:
    indices = torch.tensor([5, 0])
    assert as_lists([Tensors(X, Y).gather(indices)]) == [[[[10.0, 11.0], [0.0, 1.0]], [5, 0]]]
    assert Tensors(label=Y).gather(indices)["label"].tolist() == [5, 0]


def test_a_plain_loader_gives_the_batches_of_a_tensor_dataset() -> None:
    for workers in (0, 1):
        options: dict[str, Any] = {"batch_size": 3, "num_workers": workers}
        expected = as_lists(DataLoader(TensorDataset(X, Y), **options))
        assert as_lists(DataLoader(Tensors(X, Y), **options)) == expected, workers
        own = DataLoader(Tensors(X, Y), collate_fn=Tensors.collate, **options)
        assert as_lists(own) == expected, workers
        named = as_lists(DataLoader(Tensors(x=X, label=Y), **options))
        assert [list(batch.values()) for batch in named] == expected, workers


def test_its_loader_gathers_batches() -> None:
    loader = Tensors(x=X, label=Y).loader(batch_size=3, drop_last=True)
    assert [batch["label"].tolist() for batch in loader] == [[0, 1, 2], [3, 4, 5]]
    shuffled = Tensors(Y).loader(batch_size=7, shuffle=True)
    assert sorted(next(iter(shuffled))[0].tolist()) == list(range(7))


def test_samplers_may_give_negative_indices() -> None:
    loader = DataLoader(Tensors(Y), batch_size=2, sampler=[-1, 0])
    assert as_lists(loader) == [[[6, 0]]]


def test_subsets_and_concatenations_of_tensors_work() -> None:
    parts = random_split(Tensors(x=X, label=Y), [3, 4], torch.Generator().manual_seed(0))
    labels = [label for part in parts for batch in DataLoader(part, 2) for label in batch["label"]]
    assert sorted(map(int, labels)) == list(range(7))
    both = ConcatDataset([Tensors(Y), Tensors(Y)])
    assert len(as_lists(DataLoader(both, 7))) == 2


def test_every_kind_of_array_is_accepted() -> None:
    for array in (
        np.arange(7),
        np.arange(7)[::-1],
        np.broadcast_to(np.arange(7), (7,)),
        np.arange(14)[::2],
        range(7),
        [1, 2, 3, 4, 5, 6, 7],
        torch.arange(14)[::2],
        torch.arange(7.0).requires_grad_(),
        torch.nn.Parameter(torch.arange(7.0)),
        torch.complex(X[:, 0], X[:, 1]).conj(),
    ):
        (tensor,) = Tensors(array).tensors
        expected = array if isinstance(array, Tensor) else torch.tensor(list(map(int, array)))
        assert torch.equal(tensor, expected.detach()), array
        assert tensor.is_contiguous(), array
        assert type(tensor) is Tensor, array
        assert not tensor.requires_grad, array


def test_memory_is_shared_if_possible() -> None:
    array = np.zeros(3)
    data = Tensors(array, X[:3])
    array[0] = 5
    assert float(data[0][0]) == 5
    assert data.tensors[1].data_ptr() == X.data_ptr()


def test_arrays_come_by_position_or_by_name() -> None:
    for arrays, named in (((), {}), ((X,), {"label": Y})):
        with pytest.raises(DataError, match=r"either by position or by name\n  write Tensors\(x"):
            Tensors(*arrays, **named)


def test_different_lengths_are_named() -> None:
    with pytest.raises(DataError, match="Tensors: label has 3 rows, and image has 7\n  give one"):
        Tensors(image=X, label=Y[:3])
    with pytest.raises(DataError, match="Tensors: array 2 has 3 rows, and array 1 has 7"):
        Tensors(X, Y[:3])


def test_values_that_are_no_arrays_of_numbers_are_refused() -> None:
    for array, what in (
        (np.array(["a", "b"]), "x, a ndarray, cannot become a tensor"),
        (["a", "b"], "x, a list, cannot become a tensor"),
        (None, "x, a NoneType, cannot become a tensor"),
        (torch.tensor(3), "x has no rows"),
        (5.0, "x has no rows"),
        (X.to_sparse(), "x is torch.sparse_coo"),
    ):
        with pytest.raises(DataError, match=f"Tensors: {what}"):
            Tensors(x=array)


def test_arrays_on_several_devices_are_refused() -> None:
    with pytest.raises(DataError, match="array 2 is on meta, and array 1 on cpu\n  give all"):
        Tensors(X, Y.to("meta"))


def test_a_masked_array_is_refused() -> None:
    array = np.ma.masked_array(np.arange(3.0), mask=[False, True, False])
    with pytest.raises(DataError, match=r"Tensors: x is a masked array, .*\n  give array.filled"):
        Tensors(x=array)


def test_an_array_cannot_be_called_resident() -> None:
    for value in (torch.ones(3), 1, "yes"):
        message = r"resident must be True, False or None, got a \w+\n  give an array of that name"
        with pytest.raises(DataError, match=message):
            Tensors(resident=value)


def test_arrays_of_any_byte_order_are_accepted() -> None:
    for kind in (">f4", "<f4", ">i8", ">f8", ">i2"):
        (tensor,) = Tensors(np.arange(4, dtype=kind)).tensors
        assert tensor.tolist() == [0, 1, 2, 3], kind


class Noisy(Dataset):  # type: ignore[type-arg]  # reason: torch's generic at run time
    """Three numbers, each with noise."""

    def __len__(self) -> int:
        return 3

    def __getitem__(self, index: int) -> tuple[int, float]:
        return index, random.random()


class Stream(IterableDataset):  # type: ignore[type-arg]  # reason: torch's generic at run time
    def __iter__(self) -> Iterator[int]:
        return iter(range(7))


def build(dataset: object, **options: Any):
    return build_loader(
        dataset, replace(LoaderOptions(), batch_size=2, **options), split="train", device="cpu"
    )


def epoch(loader: object, number: int) -> list[tuple[int, float]]:
    task = TinyTask()
    task.train_loader = loader  # type: ignore[assignment]  # of any kind
    feed = Feed(task, seed=3, accumulate=1, limit=None)
    return [
        (int(index), float(noise))
        for (batch,) in feed.epoch(number)
        for index, noise in zip(*batch, strict=True)
    ]


def test_each_repetition_of_a_sample_has_its_own_random_numbers() -> None:
    for workers in (0, 2):
        read = epoch(build(Noisy(), repeat=4, workers=workers), 0)
        assert Counter(index for index, _ in read) == {0: 4, 1: 4, 2: 4}, workers
        assert len({noise for _, noise in read}) == 12, workers
        assert read == epoch(build(Noisy(), repeat=4), 0), workers
        assert read != epoch(build(Noisy(), repeat=4), 1), workers


def test_repeated_tensors_are_gathered_at_once() -> None:
    data = ep.data.Tensors(x=torch.arange(3), y=torch.arange(3) * 10)
    loader = build(data, repeat=2, shuffle=False)
    batches = [{name: column.tolist() for name, column in batch.items()} for batch in loader]
    assert batches[0] == {"x": [0, 1], "y": [0, 10]}
    assert [batch["x"] for batch in batches] == [[0, 1], [2, 0], [1, 2]]
    assert not hasattr(Repeated(Noisy(), 2), "__getitems__")


def test_an_index_beyond_the_end_is_refused() -> None:
    repeated = Repeated([1, 2], 3)
    assert (len(repeated), list(repeated)) == (6, [1, 2, 1, 2, 1, 2])
    with pytest.raises(IndexError):
        repeated[6]


def test_iterable_datasets_cannot_be_repeated() -> None:
    with pytest.raises(ConfigError, match=r"data\.train\.repeat: cannot be 2: Stream is iterable"):
        build(Stream(), repeat=2)


def test_repetitions_may_fill_a_batch() -> None:
    loader = build_loader(
        [1, 2], LoaderOptions(batch_size=6, repeat=3, drop_last=True), split="train", device="cpu"
    )
    assert len(loader) == 1
    with pytest.raises(DataError, match="fill no batch"):
        build_loader(
            [1, 2],
            LoaderOptions(batch_size=6, repeat=2, drop_last=True),
            split="train",
            device="cpu",
        )


class Augmented(Dataset):  # type: ignore[type-arg]  # reason: torch's generic at run time
    """Three samples with random numbers."""

    def __len__(self) -> int:
        return 3

    def __getitem__(self, index: int) -> dict[str, torch.Tensor]:
        return {"x": torch.full((4,), float(index)) + torch.rand(4), "y": torch.ones(2)}


class Fitting(ep.Task):
    def __init__(self) -> None:
        self.train_loader = build(Augmented(), repeat=3)

    def batch_forward(self, model: nn.Module, batch: Any) -> Any:
        return {"y": model(batch["x"])}

    def batch_loss(self, out: Any, batch: Any) -> Any:
        return {"loss": (nn.functional.mse_loss(out["y"], batch["y"]), len(batch["y"]))}


def test_a_run_resumes_in_the_middle_of_repetitions() -> None:
    def make(settings: dict[str, Any]) -> ep.Run:
        torch.manual_seed(0)
        model = nn.Linear(4, 2)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        parts = Parts(task=Fitting(), model=model, optimizer=optimizer)
        options = Options(train=TrainOptions(for_=parse_duration("2ep")))
        return create_run(parts, options, Environment(**settings))

    assert assert_resumes_everywhere(make) >= 10
