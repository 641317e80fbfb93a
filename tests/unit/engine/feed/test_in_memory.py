"""Tests of gathered batches: the same as the loader's own, or left to the loader."""

from __future__ import annotations

import gc
import weakref
from itertools import product
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.utils.data import (
    BatchSampler,
    DataLoader,
    Dataset,
    RandomSampler,
    SequentialSampler,
    Subset,
    TensorDataset,
    WeightedRandomSampler,
    default_collate,
)

import epochal as ep
from epochal.data.datasets import Tensors
from epochal.engine.device.move import BatchMover, keep_batch
from epochal.engine.device.seeding import derive_seed
from epochal.engine.feed.in_memory import InMemoryLoaders, find_in_memory_source
from epochal.engine.feed.sampling_order import DataPass, fixed_order
from epochal.engine.feed.static_inputs import StaticInputs

if TYPE_CHECKING:
    from collections.abc import Iterator


CPU = torch.device("cpu")
LENGTH = 23

DTYPES = [
    torch.bool,
    torch.uint8,
    torch.int8,
    torch.int16,
    torch.int32,
    torch.int64,
    torch.float16,
    torch.bfloat16,
    torch.float32,
    torch.float64,
    torch.complex64,
    torch.complex128,
]


def columns() -> tuple[Tensor, Tensor, Tensor]:
    numbers = torch.arange(LENGTH)
    return torch.randn(LENGTH, 3, 2), numbers, numbers.to(torch.uint8)[:, None]


def gathered(loader: DataLoader[Any], seed: int = 0) -> list[Any]:
    found = InMemoryLoaders().find(loader, DataPass(derive_seed(seed, "order")))
    assert found is not None, "the loader was not recognised"
    return list(found.batches)


def loaded(loader: DataLoader[Any], seed: int = 0) -> list[Any]:
    with fixed_order(loader, derive_seed(seed, "order")):
        return list(loader)


def assert_same(one: Any, other: Any) -> None:
    """Equal kinds, names, bits, shapes, dtypes and strides."""
    assert type(one) is type(other)
    if isinstance(one, Tensor):
        assert (one.dtype, one.shape, one.stride()) == (other.dtype, other.shape, other.stride())
        assert torch.equal(one, other)
        return
    assert len(one) == len(other)
    if isinstance(one, dict):
        assert list(one) == list(other)
        one, other = list(one.values()), list(other.values())
    for left, right in zip(one, other, strict=True):
        assert_same(left, right)


def datasets() -> dict[str, Dataset[Any]]:
    image, label, mask = columns()
    return {
        "TensorDataset": TensorDataset(image, label, mask),
        "one tensor": TensorDataset(label),
        "Tensors": ep.data.Tensors(image, label, mask),
        "one of Tensors": ep.data.Tensors(label),
        "named Tensors": ep.data.Tensors(image=image, label=label, mask=mask),
        "resident Tensors": ep.data.Tensors(image=image, label=label, resident=True),
    }


def test_batches_are_bit_for_bit_those_of_the_loader() -> None:
    options = product([1, 5, LENGTH, 50], [True, False], [True, False])
    for batch_size, drop_last, shuffle in options:
        for dataset in datasets().values():
            loader = DataLoader(dataset, batch_size, shuffle, drop_last=drop_last)
            assert_same(gathered(loader), loaded(loader))


def test_every_dtype_and_shape_is_gathered() -> None:
    shapes: list[tuple[int, ...]] = [(), (3,), (2, 0), (2, 3, 2, 2)]
    for shape, shuffle, dtype in product(shapes, [True, False], DTYPES):
        values = torch.randint(0, 100, (LENGTH, *shape)).to(dtype)
        loader = DataLoader(TensorDataset(values), batch_size=4, shuffle=shuffle)
        assert_same(gathered(loader), loaded(loader))


def test_more_batches_than_are_prepared_at_once_keep_their_order() -> None:
    loader = DataLoader(TensorDataset(torch.arange(2000)), batch_size=3, shuffle=True)
    assert_same(gathered(loader), loaded(loader))
    loader = DataLoader(TensorDataset(torch.arange(2000)), batch_size=3)
    assert_same(gathered(loader), loaded(loader))


def test_a_batch_sampler_of_torch_is_recognised_too() -> None:
    dataset = TensorDataset(torch.arange(LENGTH))
    for sampler in (RandomSampler(dataset), SequentialSampler(dataset)):
        loader = DataLoader(dataset, batch_sampler=BatchSampler(sampler, 4, True))
        assert_same(gathered(loader), loaded(loader))


def test_the_loader_of_tensors_is_gathered() -> None:
    for shuffle in (True, False):
        loader = ep.data.Tensors(*columns()).loader(batch_size=4, shuffle=shuffle)
        assert_same(gathered(loader), loaded(loader))


class Flipped(TensorDataset):
    def __getitem__(self, index: int) -> Any:
        return tuple(tensor.flip(0) for tensor in super().__getitem__(index))


class Noisy(ep.data.Tensors):  # type: ignore[misc]  # final, which Python does not enforce
    def __getitem__(self, index: int) -> Any:
        return [torch.rand(3)]


class Backwards(SequentialSampler):
    def __iter__(self) -> Iterator[int]:
        return reversed(range(len(self)))


class Loader(DataLoader[Any]):
    pass


def others() -> dict[str, object]:
    rows = torch.randn(LENGTH, 3)
    plain = TensorDataset(rows)
    shuffled = {"generator": torch.Generator(), "shuffle": True}
    return {
        "a list": [rows],
        "a subclass of the loader": Loader(plain),
        "workers": DataLoader(plain, num_workers=1),
        "a subclass of the dataset": DataLoader(Flipped(rows)),
        "a subclass of Tensors": DataLoader(Noisy(rows)),
        "another dataset": DataLoader(Subset(plain, [1, 2])),
        "another collate": DataLoader(plain, collate_fn=lambda samples: samples),
        "another collate of Tensors": DataLoader(ep.data.Tensors(rows), collate_fn=list),
        "no batches": DataLoader(plain, batch_size=None),
        "a sampler of weights": DataLoader(plain, sampler=WeightedRandomSampler([1.0] * 3, 3)),
        "a subclass of a sampler": DataLoader(plain, sampler=Backwards(plain)),
        "a sampler of other data": DataLoader(plain, sampler=SequentialSampler(range(3))),
        "replacement": DataLoader(plain, sampler=RandomSampler(plain, replacement=True)),
        "fewer samples": DataLoader(plain, sampler=RandomSampler(plain, num_samples=3)),
        "more samples": DataLoader(plain, sampler=RandomSampler(plain, num_samples=50)),
        "tensors with gradients": DataLoader(
            TensorDataset(rows.clone().requires_grad_()), **shuffled
        ),
        "strided tensors": DataLoader(TensorDataset(rows.T.contiguous().T), **shuffled),
        "a subclass of Tensor": DataLoader(TensorDataset(torch.nn.Parameter(rows)), **shuffled),
        "other dtypes": DataLoader(TensorDataset(rows.to(torch.float8_e4m3fn)), **shuffled),
        "a conjugate": DataLoader(TensorDataset((rows + 1j * rows).conj()), **shuffled),
    }


def test_loaders_that_might_differ_are_not_gathered() -> None:
    for kind, loader in others().items():
        assert find_in_memory_source(loader) is None, kind
        assert InMemoryLoaders().find(loader, DataPass(0)) is None, kind
        assert not InMemoryLoaders.can_gather(loader), kind


def test_a_pass_begins_at_any_position() -> None:
    dataset, seed = TensorDataset(*columns()), derive_seed(0, "order")
    for drop_last, shuffle in product([True, False], [True, False]):
        loader = DataLoader(dataset, batch_size=5, shuffle=shuffle, drop_last=drop_last)
        whole = gathered(loader)
        for start in range(len(whole) + 2):
            found = InMemoryLoaders().find(loader, DataPass(seed, start=start))
            assert found is not None
            assert_same(list(found.batches), whole[start:])


def test_the_generator_of_the_sampler_is_neither_needed_nor_used() -> None:
    generator = torch.Generator().manual_seed(1)
    state = generator.get_state()
    dataset = TensorDataset(torch.arange(LENGTH))
    with_it = gathered(DataLoader(dataset, shuffle=True, generator=generator))
    assert_same(with_it, gathered(DataLoader(dataset, shuffle=True)))
    assert torch.equal(generator.get_state(), state)


def test_an_empty_dataset_gives_no_batch() -> None:
    for names in ({}, {"x": torch.zeros(0, 2)}):
        dataset = ep.data.Tensors(**names) if names else TensorDataset(torch.zeros(0, 2))
        assert gathered(DataLoader(dataset, batch_size=4)) == []


def test_a_task_that_changes_its_batch_does_not_change_the_data() -> None:
    for resident, shuffle in product([True, False], [True, False]):
        data = ep.data.Tensors(torch.ones(LENGTH, 2), resident=resident)
        loader = data.loader(batch_size=4, shuffle=shuffle)
        gatherer = InMemoryLoaders()
        for _ in range(2):
            found = gatherer.find(loader, DataPass(0))
            assert found is not None
            for (batch,) in found.batches:
                assert batch.sum() == batch.numel(), (resident, shuffle)
                batch.zero_()


def test_resident_data_are_moved_and_cast_once() -> None:
    calls = []

    class Counted:
        device = CPU

        def __call__(self, tensor: Tensor) -> Tensor:
            calls.append(tensor.shape)
            return BatchMover(CPU, torch.float64)(tensor)

    data = ep.data.Tensors(x=torch.randn(LENGTH, 2), label=torch.arange(LENGTH), resident=True)
    gatherer = InMemoryLoaders(Counted())
    for shuffle in (True, False):
        loader = data.loader(batch_size=10, shuffle=shuffle)
        found = gatherer.find(loader, DataPass(0))
        assert found is not None
        assert found.is_moved
        first = next(found.batches)
        assert first["x"].dtype == torch.float64
        assert torch.equal(first["x"].float(), data.tensors[0][first["label"]])
    assert calls == [(LENGTH, 2), (LENGTH,)]


def test_resident_images_come_out_with_channels_last() -> None:
    for shuffle in [True, False]:
        images = torch.randn(LENGTH, 3, 4, 5)
        data = ep.data.Tensors(image=images, label=torch.arange(LENGTH), resident=True)
        loader = data.loader(batch_size=4, shuffle=shuffle)
        move = BatchMover(CPU, None, channels_last=True)
        found = InMemoryLoaders(move).find(loader, DataPass(0))
        assert found is not None, shuffle
        for batch in found.batches:
            assert batch["image"].is_contiguous(memory_format=torch.channels_last), shuffle
            assert move(batch)["image"] is batch["image"], shuffle
            assert torch.equal(batch["image"], images[batch["label"]]), shuffle


def test_other_data_are_left_for_others_to_move() -> None:
    found = InMemoryLoaders(BatchMover(CPU, torch.float64)).find(
        ep.data.Tensors(torch.ones(3)).loader(), DataPass(0)
    )
    assert found is not None
    assert not found.is_moved
    assert next(found.batches)[0].dtype == torch.float32


def for_a_device() -> InMemoryLoaders:
    """One that takes the device of the data for another one."""
    return InMemoryLoaders(BatchMover(CPU, torch.float64), is_pinned=True)


def first_of_a_device(data: Dataset[Any]) -> tuple[Any, bool]:
    """The first batch of a pass for another device, and if it is there."""
    found = for_a_device().find(DataLoader(data), DataPass(0))
    assert found is not None
    return next(found.batches)[0] if found.is_moved else None, found.is_moved


def test_small_data_lie_on_the_device_as_they_are_when_a_pass_begins() -> None:
    for epochs in [(0, 1), (None, None), (0, None)]:
        for kind in [Tensors, TensorDataset]:
            values = np.ones((3, 2), np.float32)
            loader, gatherer = DataLoader(kind(torch.from_numpy(values))), for_a_device()
            for epoch, value in zip(epochs, (1, 7), strict=True):
                values[:] = value  # torch does not know of it
                found = gatherer.find(loader, DataPass(0, epoch))
                assert found is not None, kind
                assert found.is_moved, kind
                batch = next(found.batches)[0]
                assert batch.dtype == torch.float64, kind
                assert batch.tolist() == [[value, value]], kind


def test_small_data_of_an_evaluation_leave_the_device_with_it() -> None:
    gatherer, held = for_a_device(), []
    data = Tensors(torch.ones(3))
    for epoch in (0, None):
        found = gatherer.find(DataLoader(data), DataPass(0, epoch))
        assert found is not None
        held.append(len(gatherer._device_copies))
        data = Tensors(torch.ones(4))
    assert held == [1, 0]  # of the training its dataset is gone by then


def test_larger_data_and_those_that_shall_not_lie_there_are_sent(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("epochal.engine.feed.in_memory._SMALL_BYTES", 8)
    assert first_of_a_device(Tensors(torch.ones(2)))[1]
    assert not first_of_a_device(Tensors(torch.ones(3)))[1]
    assert not first_of_a_device(Tensors(torch.ones(2), resident=False))[1]


def test_the_default_collate_and_its_own_are_both_taken() -> None:
    data = ep.data.Tensors(x=torch.arange(6))
    for collate in (default_collate, data.collate):
        assert find_in_memory_source(DataLoader(data, collate_fn=collate)) is not None


def aimed(data: Tensors, targets: list[Tensor]) -> Any:
    """The first batch of a resident dataset, gathered into the targets if it fits."""
    static_inputs = StaticInputs()
    static_inputs.set_targets(targets)
    found = InMemoryLoaders().find(
        data.loader(batch_size=4, shuffle=True), DataPass(0), static_inputs
    )
    assert found is not None
    return next(found.batches)


def test_batches_are_gathered_into_static_inputs() -> None:
    place = torch.empty(4, 2)
    data = Tensors(torch.randn(LENGTH, 2), resident=True)
    assert aimed(data, [place])[0] is place


def test_static_inputs_of_another_shape_are_not_written() -> None:
    for other in [
        torch.randn(LENGTH, 5),
        torch.randn(LENGTH, 2, 1),
        torch.ones(LENGTH, 2).double(),
    ]:
        place = torch.zeros(4, 2)
        address = place.data_ptr()
        (batch,) = aimed(Tensors(other, resident=True), [place])
        assert batch.shape == (4, *other.shape[1:])
        assert batch.dtype == other.dtype
        assert (place.shape, place.data_ptr()) == ((4, 2), address), other
        assert not place.any(), other


def moved(tensor: Tensor) -> Tensor:
    """As if to another device."""
    return tensor.clone()


def first_of(gatherer: InMemoryLoaders, data: Tensors, *, epoch: int | None = None) -> Any:
    found = gatherer.find(data.loader(batch_size=4), DataPass(0, epoch))
    assert found is not None
    return next(found.batches)


def resident_copies(*datasets: Tensors, epochs: bool = True) -> tuple[InMemoryLoaders, list[Any]]:
    """Gathers from each dataset; what is left of the copies after that."""
    copies = []

    def move(tensor: Tensor) -> Tensor:
        copies.append(weakref.ref(copy := moved(tensor)))
        return copy

    gatherer = InMemoryLoaders(move)
    for epoch, data in enumerate(datasets):
        first_of(gatherer, data, epoch=epoch if epochs else None)
    gc.collect()
    return gatherer, [copy() is not None for copy in copies]


def make_residents(count: int) -> list[Tensors]:
    return [Tensors(torch.randn(LENGTH, 2), resident=True) for _ in range(count)]


@pytest.mark.usefixtures("older_objects_are_kept")
def test_only_the_latest_data_of_training_stay_on_the_device() -> None:
    one, other = make_residents(2)
    _in_memory_loaders, are_left = resident_copies(one, other, other)
    assert are_left == [False, True]


@pytest.mark.usefixtures("older_objects_are_kept")
def test_data_of_evaluations_stay_during_training() -> None:
    train, val = make_residents(2)
    gatherer, _ = resident_copies(train)
    for _ in range(3):
        first_of(gatherer, train, epoch=1)
        first_of(gatherer, val)
    assert len(gatherer._device_copies) == 2


@pytest.mark.usefixtures("older_objects_are_kept")
def test_data_without_references_leave_the_device() -> None:
    gatherer, _ = resident_copies(*make_residents(3), epochs=False)
    gc.collect()
    assert not gatherer._device_copies


def test_resident_data_that_were_written_to_are_copied_again() -> None:
    data = Tensors(torch.zeros(LENGTH), resident=True)
    gatherer = InMemoryLoaders(moved)
    assert not first_of(gatherer, data)[0].any()
    data.tensors[0].fill_(1.0)
    assert first_of(gatherer, data)[0].all()
    data.tensors = (torch.zeros(LENGTH),)
    assert not first_of(gatherer, data)[0].any()


def test_data_that_are_on_the_device_already_are_never_written_over() -> None:
    for move in [keep_batch, BatchMover(CPU, torch.float32)]:
        before, after = torch.zeros(LENGTH), torch.ones(LENGTH)
        data = Tensors(before, resident=True)
        gatherer = InMemoryLoaders(move)
        assert not first_of(gatherer, data)[0].any(), move
        data.tensors = (after,)
        assert first_of(gatherer, data)[0].all(), move
        assert not before.any(), move
        after.fill_(2.0)
        assert first_of(gatherer, data)[0].sum() == 8, move
        assert after._version == 1, "only this test wrote into it"


def test_data_of_inference_mode_are_kept_too() -> None:
    with torch.inference_mode():
        data = Tensors(torch.ones(LENGTH), resident=True)
    assert first_of(InMemoryLoaders(moved), data)[0].all()
