"""Tests of repeated datasets: length, order, random numbers and resume."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
import torch
from torch import nn
from torch.utils.data import Dataset, IterableDataset

import epochal as ep
from epochal.components.data.loader import LoaderOptions, build_loader
from epochal.components.data.repeated import Repeated
from epochal.config import parse_duration
from epochal.engine import Environment, Options, Parts
from epochal.engine.feed.feed import Feed
from epochal.engine.interfaces.options import TrainOptions
from epochal.errors import ConfigError, DataError
from epochal.testing import TinyTask
from resume import assert_resumes_everywhere

if TYPE_CHECKING:
    from collections.abc import Iterator


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
        return ep.Run(parts, options, Environment(**settings))

    assert assert_resumes_everywhere(make) >= 10
