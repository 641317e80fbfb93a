"""Tests of loaders: defaults by split and device, and refused options."""

from __future__ import annotations

import os
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

import pytest
import torch
from torch.utils.data import (
    DataLoader,
    Dataset,
    IterableDataset,
    RandomSampler,
    SequentialSampler,
    WeightedRandomSampler,
)

import epochal as ep
from epochal.data.loader import LoaderOptions, build_loader, count_workers
from epochal.engine.feed.in_memory import find_in_memory_source
from epochal.errors import ConfigError, DataError
from epochal.testing import TinyTask, tiny_run

if TYPE_CHECKING:
    from collections.abc import Iterator

SAMPLES = [{"x": torch.tensor([float(i)]), "label": i} for i in range(10)]


class Stream(IterableDataset):  # type: ignore[type-arg]  # reason: torch's generic at run time
    def __iter__(self) -> Iterator[int]:
        return iter(range(7))


class Endless(Dataset):  # type: ignore[type-arg]  # reason: torch's generic at run time
    def __getitem__(self, index: int) -> int:
        return index


def build(
    dataset: object = SAMPLES, *, split: str = "train", device: str = "cpu", **options: object
):
    return build_loader(
        dataset,
        replace(LoaderOptions(), **options),
        split=split,
        device=device,
    )


def first_column(batches: object) -> list[int]:
    return [int(label) for batch in batches for label in batch["label"]]


def test_train_is_shuffled_and_other_splits_are_not() -> None:
    assert isinstance(build(split="train").sampler, RandomSampler)
    for split in ("val", "test", "predict"):
        assert isinstance(build(split=split).sampler, SequentialSampler)


def test_shuffle_can_be_set_for_any_split() -> None:
    assert isinstance(build(split="train", shuffle=False).sampler, SequentialSampler)
    assert isinstance(build(split="val", shuffle=True).sampler, RandomSampler)


def test_the_order_depends_on_the_generator_of_the_loader() -> None:
    loader = build(batch_size=4)
    orders = []
    for global_seed in (1, 2):
        torch.manual_seed(global_seed)
        loader.generator.manual_seed(7)
        orders.append(first_column(loader))
    assert orders[0] == orders[1]
    assert sorted(orders[0]) == list(range(10))


def test_every_sample_comes_once_and_the_last_batch_may_be_short() -> None:
    batches = list(build(batch_size=4, split="val"))
    assert [len(batch["label"]) for batch in batches] == [4, 4, 2]
    assert first_column(batches) == list(range(10))


def test_drop_last_leaves_out_the_short_batch() -> None:
    assert len(build(batch_size=4, drop_last=True)) == 2


def test_memory_is_pinned_for_cuda_or_on_request() -> None:
    assert not build(device="cpu").pin_memory
    assert build(device="cuda:0").pin_memory
    assert not build(device="cuda", pin_memory=False).pin_memory


def test_workers_persist_only_in_training() -> None:
    assert not build().persistent_workers
    assert not build(persistent_workers=True).persistent_workers
    assert build(workers=2).persistent_workers
    assert not build(workers=2, split="val").persistent_workers
    assert not build(workers=2, persistent_workers=False).persistent_workers
    assert build(workers=2, split="val", persistent_workers=True).persistent_workers


class Augmented(Dataset[list[torch.Tensor]]):
    """Random samples."""

    def __len__(self) -> int:
        return 4

    def __getitem__(self, index: int) -> list[torch.Tensor]:
        return [torch.rand(4), torch.tensor(index % 3)]


def test_workers_of_an_evaluation_draw_the_same_random_numbers_each_time() -> None:
    task = TinyTask()
    task.val_loader = build(Augmented(), split="val", workers=1, batch_size=2)
    seen: list[torch.Tensor] = []
    task.batch_forward = lambda model, batch: seen.append(batch[0]) or {}
    task.batch_metric = lambda out, batch: {"one": (1.0, 2)}
    run = tiny_run(task=task, monitor=None)
    run.bind()
    run.evaluate()
    run.evaluate()
    assert torch.equal(torch.cat(seen[:2]), torch.cat(seen[2:]))


def test_automatic_workers_share_the_cores_of_a_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(12)), raising=False)
    assert count_workers(LoaderOptions(workers="auto")) == 8
    slurm = {"PROCID": "1", "STEP_NUM_TASKS": "8", "LOCALID": "1", "STEP_TASKS_PER_NODE": "4(x2)"}
    for name, value in slurm.items():
        monkeypatch.setenv(f"SLURM_{name}", value)
    assert count_workers(LoaderOptions(workers="auto")) == 2


def test_a_given_collate_builds_the_batches() -> None:
    loader = build([3, 4, 5], split="val", batch_size=2, collate=sum)
    assert list(loader) == [7, 5]


def test_arguments_that_a_sampler_lacks_are_named() -> None:
    message = r"data\.train\.sampler: WeightedRandomSampler needs 'weights' and 'num_samples'\n"
    with pytest.raises(ConfigError, match=message):
        build(SAMPLES, sampler=WeightedRandomSampler)
    drawn = build(SAMPLES, sampler=partial(WeightedRandomSampler, [1.0] * 8, num_samples=2))
    assert len(drawn.sampler) == 2


def test_a_sampler_is_refused_where_it_has_nothing_to_choose() -> None:
    for dataset, options, message in (
        (SAMPLES, {"shuffle": True}, r"data\.train\.shuffle: cannot be True: the sampler"),
        (Stream(), {}, r"data\.train\.sampler: Stream is iterable"),
        (ep.data.chain(SAMPLES), {}, r"data\.train\.sampler: a chain chooses(.|\n)*the pipe"),
    ):
        with pytest.raises(ConfigError, match=message):
            build(dataset, sampler=RandomSampler, **options)


def test_a_list_dataset_has_samples_a_slice_and_transforms() -> None:
    data = ep.data.ListDataset(list("abcdef"), slice=[1, None, 2], transforms=[str.upper, ord])
    assert [data[index] for index in range(len(data))] == [66, 68, 70]
    for arguments, message in (
        ({}, "ListDataset: has no samples\n  give samples, or override list_samples"),
        ({"samples": [1], "slice": [1, 2, 3, 4]}, r"slice has 4 numbers\n  write \[stop\]"),
    ):
        with pytest.raises(DataError, match=message):
            ep.data.ListDataset(**arguments)


def test_tensors_are_batched_by_gathering() -> None:
    for split in ("train", "val"):
        data = ep.data.Tensors(x=torch.zeros(10, 2), label=torch.arange(10))
        loader = build(data, split=split, batch_size=4)
        assert find_in_memory_source(loader) is not None, split
        assert sorted(first_column(loader)) == list(range(10)), split


def test_a_given_collate_is_used_for_tensors() -> None:
    loader = build(ep.data.Tensors(torch.arange(4)), split="val", batch_size=2, collate=len)
    assert list(loader) == [2, 2]
    assert find_in_memory_source(loader) is None


def test_a_loader_is_returned_as_it_is() -> None:
    loader = DataLoader([1, 2])
    assert build(loader) is loader


def test_options_for_a_ready_loader_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"data\.train\.batch_size: cannot be 8.*\n.*remove"):
        build(DataLoader([1, 2]), batch_size=8)


def test_iterable_dataset_is_read_in_its_own_order_also_for_train() -> None:
    batches = list(build(Stream(), batch_size=3))
    assert torch.cat(batches).tolist() == list(range(7))


def test_shuffling_an_iterable_dataset_is_explained() -> None:
    message = r"data\.val\.shuffle: cannot be True: Stream is iterable(.|\n)*inside the dataset"
    with pytest.raises(ConfigError, match=message):
        build(Stream(), split="val", shuffle=True)


def test_impossible_numbers_are_refused() -> None:
    for options, message in (
        ({"batch_size": 0}, r"data\.train\.batch_size: must be at least 1, got 0"),
        ({"batch_size": -4}, r"must be at least 1, got -4"),
        ({"workers": -1}, r"data\.train\.workers: must be at least 0, got -1"),
    ):
        with pytest.raises(ConfigError, match=message):
            build(**options)


def test_empty_dataset_is_named_before_the_run() -> None:
    with pytest.raises(DataError, match=r"data\.train: the dataset list is empty"):
        build([])


def test_dropping_the_only_batch_is_an_error_with_the_numbers() -> None:
    with pytest.raises(DataError, match=r"10 samples fill no batch of 32(.|\n)*drop_last=false"):
        build(drop_last=True)


def test_a_dataset_without_length_is_refused() -> None:
    with pytest.raises(ConfigError, match="Endless has no __len__"):
        build(Endless())


def test_an_object_without_samples_is_named_by_its_type() -> None:
    with pytest.raises(ConfigError, match=r"data\.val: cannot read samples from a int"):
        build(3, split="val")
