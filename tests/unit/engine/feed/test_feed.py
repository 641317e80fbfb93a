"""Tests of reading loaders as steps."""

from __future__ import annotations

import random
import re
import sys
from functools import partial
from itertools import islice, product
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.utils.data import (
    BatchSampler,
    DataLoader,
    Dataset,
    IterableDataset,
    RandomSampler,
    Sampler,
    TensorDataset,
    WeightedRandomSampler,
)

import epochal as ep
from epochal.engine.device.move import BatchMover
from epochal.engine.feed.feed import (
    Feed,
    count_batches,
    iter_batches,
    named_loaders,
    require_loaders,
)
from epochal.engine.feed.host_generators import HostGenerators
from epochal.engine.feed.sampling_order import DataPass, fixed_order
from epochal.errors import DataError

if TYPE_CHECKING:
    from collections.abc import Iterator


class Holder:
    def __init__(self, **loaders: object) -> None:
        self.__dict__.update(loaders)


def feed(loader: object, *, seed: int = 0, accumulate: int = 1, limit: int | None = None) -> Feed:
    return Feed(Holder(train_loader=loader), seed=seed, accumulate=accumulate, limit=limit)


def loader(count: int = 10, batch_size: int = 2, **options: Any) -> DataLoader[Any]:
    return DataLoader(TensorDataset(torch.arange(count)), batch_size=batch_size, **options)


def order(feed: Feed, epoch: int) -> list[int]:
    return [int(n) for step in feed.epoch(epoch) for batch in step for n in batch[0]]


def test_order_is_a_function_of_seed_and_epoch() -> None:
    first = order(feed(loader(shuffle=True)), 3)
    torch.manual_seed(99)
    assert order(feed(loader(shuffle=True)), 3) == first
    assert order(feed(loader(shuffle=True), seed=1), 3) != first


def test_order_differs_between_epochs_defect_24() -> None:
    one = feed(loader(shuffle=True))
    orders = [order(one, epoch) for epoch in range(3)]
    assert orders[0] != orders[1] != orders[2]
    assert [sorted(numbers) for numbers in orders] == [list(range(10))] * 3


def test_order_does_not_depend_on_the_generator_that_was_given() -> None:
    given = loader(shuffle=True, generator=torch.Generator().manual_seed(5))
    assert order(feed(given), 1) == order(feed(loader(shuffle=True)), 1)


def test_other_samplers_with_a_generator_are_seeded_too() -> None:
    def weighted() -> DataLoader[Any]:
        return loader(sampler=WeightedRandomSampler([1.0] * 10, 10))

    def batched() -> DataLoader[Any]:
        dataset = TensorDataset(torch.arange(10))
        return DataLoader(dataset, batch_sampler=BatchSampler(RandomSampler(dataset), 2, False))

    for make in (weighted, batched):
        first = order(feed(make()), 0)
        torch.rand(3)
        assert order(feed(make()), 0) == first
        assert order(feed(make()), 1) != first


def test_set_epoch_of_samplers_is_called() -> None:
    class Told(Sampler[int]):
        def __init__(self) -> None:
            self.epochs: list[int] = []

        def set_epoch(self, epoch: int) -> None:
            self.epochs.append(epoch)

        def __iter__(self) -> Iterator[int]:
            return iter(range(4))

    plain, inner = Told(), Told()
    one = feed(loader(sampler=plain))
    two = feed(
        DataLoader(TensorDataset(torch.arange(4)), batch_sampler=BatchSampler(inner, 2, False))
    )
    for epoch in (0, 1):
        order(one, epoch)
        order(two, epoch)
    assert plain.epochs == inner.epochs == [0, 1]


def test_batches_are_grouped_and_the_remainder_is_not_lost() -> None:
    one = feed(loader(), accumulate=2)
    assert [len(step) for step in one.epoch(0)] == [2, 2, 1]
    assert one.steps_per_epoch == 3
    assert one.samples_per_step == 4


def test_data_of_another_stage_are_released() -> None:
    for accumulate in [1, 2]:
        one = feed(loader(), accumulate=accumulate)
        released: list[int] = []
        one.static_inputs.release_data = partial(released.append, 1)  # type: ignore[method-assign]
        list(one.epoch(0))
        assert released, accumulate


def test_position_and_samples_are_counted() -> None:
    one = feed(loader(9), accumulate=2)
    positions = [one.position for _ in one.epoch(0)]
    assert positions == [0, 2, 4]
    assert one.samples == 9
    assert one.wait_seconds > one.first_wait_seconds > 0


def test_samples_of_batches_without_tensors_are_counted_by_the_loader() -> None:
    words = DataLoader(["a", "b", "c", "d"], batch_size=2)
    one = feed(words)
    list(one.epoch(0))
    assert one.samples == 4
    two = feed(["a", "b", "c"])
    list(two.epoch(0))
    assert two.samples == 3
    for accumulate in (1, 2):
        short = feed(DataLoader(list("abcde"), batch_size=2), accumulate=accumulate)
        steps = short.epoch(0)
        next(steps)
        assert short.samples == 2 * accumulate
        list(steps)
        assert short.samples == 5, accumulate


def test_samples_of_any_batch_are_counted_by_its_first_tensor() -> None:
    for batch, samples in [
        (torch.zeros(3, 2), 3),
        ([torch.zeros(3, 2), torch.zeros(5)], 3),
        ((torch.zeros(3),), 3),
        ({"x": torch.zeros(3)}, 3),
        ([{"x": torch.zeros(3)}, "text"], 3),
        (["text", torch.zeros(3)], 3),
        ([torch.zeros(()), torch.zeros(3)], 3),
        (torch.nn.Parameter(torch.zeros(3)), 3),
        (torch.zeros(()), 1),
        ([], 1),
        ({}, 1),
        (None, 1),
    ]:
        one = feed([batch])
        list(one.epoch(0))
        assert one.samples == samples, batch


class Subclass(DataLoader[Any]):
    """Not gathered, since a subclass may change anything."""


def test_data_in_memory_come_in_the_order_of_the_loader() -> None:
    dataset = TensorDataset(torch.arange(11), torch.randn(11, 2))
    for shuffle, accumulate, limit in product([True, False], [1, 2], [None, 3]):
        feeds = [
            feed(kind(dataset, 2, shuffle), accumulate=accumulate, limit=limit)
            for kind in (DataLoader, Subclass)
        ]
        for epoch in (0, 1):
            gathered, loaded = (
                [batch for step in one.epoch(epoch) for batch in step] for one in feeds
            )
            assert len(gathered) == (limit or 6)
            for one, other in zip(gathered, loaded, strict=True):
                assert torch.equal(one[0], other[0]), (shuffle, accumulate, limit)
                assert torch.equal(one[1], other[1]), (shuffle, accumulate, limit)
        assert feeds[0].samples == feeds[1].samples


def test_a_step_resumes_one_generator_and_calls_nothing_else() -> None:
    batches = [[torch.zeros(2), torch.zeros(2)] for _ in range(5)]
    steps = feed(batches).epoch(0)
    next(steps)
    calls: list[str] = []

    def note(frame: Any, event: str, _: object) -> None:
        if event == "call":
            calls.append(frame.f_code.co_name)

    sys.setprofile(note)
    try:
        next(steps)
    finally:
        sys.setprofile(None)
    assert calls == ["_epoch"]


def test_resident_data_come_out_cast() -> None:
    data = ep.data.Tensors(x=torch.zeros(4, 2), resident=True)
    task = Holder(train_loader=data.loader(batch_size=2, shuffle=True))
    cast = BatchMover(torch.device("cpu"), torch.float64)
    one = Feed(task, seed=0, accumulate=1, limit=None, move=cast)
    assert {step[0]["x"].dtype for step in one.epoch(0)} == {torch.float64}


def test_a_pass_of_an_evaluation_is_gathered_in_its_own_order() -> None:
    one, shuffled = feed([]), loader(shuffle=True)
    with fixed_order(shuffled, 7):
        expected = [batch[0].tolist() for batch in shuffled]
    open_loader = partial(one.open, one_pass=DataPass(7))
    batches = iter_batches(shuffled, "val_loader", 3, open_loader=open_loader)
    assert [batch[0].tolist() for batch in batches] == expected[:3]


def test_an_epoch_is_complete_when_its_last_batch_was_given() -> None:
    one = feed(loader(4))
    states = [one.is_complete for _ in one.epoch(0)]
    assert states == [False, True]
    endless = feed(iter([1, 2]))
    states = [endless.is_complete for _ in endless.epoch(0)]
    assert states == [False, False]
    assert endless.is_complete


def test_a_limit_cuts_every_epoch() -> None:
    one = feed(loader(), limit=3)
    assert len(list(one.epoch(0))) == len(list(one.epoch(1))) == 3
    assert one.steps_per_epoch == 3
    assert one.is_complete


def test_the_loader_is_read_from_the_task_in_each_epoch() -> None:
    task = Holder(train_loader=[1, 2])
    one = Feed(task, seed=0, accumulate=1, limit=None)
    assert len(list(one.epoch(0))) == 2
    task.train_loader = [1, 2, 3]
    assert len(list(one.epoch(1))) == 3


def test_a_missing_loader_says_what_to_set() -> None:
    with pytest.raises(
        DataError, match=r"train_loader: the task has none\n  set self.train_loader"
    ):
        _ = feed(None).loader


def test_several_training_loaders_are_refused() -> None:
    with pytest.raises(DataError, match=r"training takes one loader, got \['a', 'b'\]"):
        _ = feed({"a": [1], "b": [2]}).loader


def test_loaders_of_a_split_may_have_names() -> None:
    assert named_loaders(Holder(val_loader=[1]), "val") == {"": [1]}
    assert named_loaders(Holder(val_loader={"a": [1], "b": [2]}), "val") == {"a": [1], "b": [2]}
    assert named_loaders(Holder(), "val") == {}


def test_a_property_that_fails_is_not_taken_for_a_missing_loader() -> None:
    class Lazy:
        @property
        def val_loader(self) -> object:
            return self.validation_data

    with pytest.raises(AttributeError, match="no attribute 'validation_data'"):
        named_loaders(Lazy(), "val")
    assert named_loaders(Lazy(), "test") == {}


def test_a_prediction_may_use_the_test_loader() -> None:
    assert require_loaders(Holder(test_loader=[1]), "predict") == {"": [1]}
    with pytest.raises(DataError, match="val_loader: the task has none"):
        require_loaders(Holder(test_loader=[1]), "val")


def test_an_empty_loader_is_an_error_that_says_why() -> None:
    with pytest.raises(DataError, match=r"gave no batch\n  check the dataset's length"):
        list(feed([]).epoch(0))
    with pytest.raises(DataError, match=r"3 samples make no batch of 8; use drop_last=False"):
        list(feed(loader(3, 8, drop_last=True)).epoch(0))
    with pytest.raises(DataError, match=r"3 samples make no batch of 8; use drop_last=False"):
        list(feed(loader(3, 8, drop_last=True, shuffle=True)).epoch(0))


def test_a_generator_that_was_read_already_is_explained() -> None:
    one = feed(batch for batch in [1, 2])
    list(one.epoch(0))
    with pytest.raises(DataError, match="an iterator can be read only once"):
        list(one.epoch(1))


def test_what_cannot_be_a_loader_is_refused() -> None:
    for loader, what in [
        (5, "train_loader: 5 gives no batches"),
        ("data.csv", "train_loader: 'data.csv' gives no batches"),
        (
            TensorDataset(torch.zeros(4)),
            "train_loader: TensorDataset is a dataset, which gives samples, not batches",
        ),
        (
            type("Rows", (list,), {"__module__": "datasets.arrow_dataset"})([{"x": 1}]),
            "train_loader: Rows is a dataset, which gives samples, not batches",
        ),
    ]:
        hint = r"\n  wrap the dataset: torch.utils.data.DataLoader\(dataset, batch_size=32\)"
        with pytest.raises(DataError, match=re.escape(what) + hint):
            list(feed(loader).epoch(0))


def test_one_of_several_loaders_that_cannot_be_one_is_named() -> None:
    class Wrong:
        val_loader: ClassVar = {"clean": [1], "noisy": 7}

    with pytest.raises(DataError, match=r"val_loader\['noisy'\]: 7 gives no batches"):
        named_loaders(Wrong(), "val")


def test_lengths_are_counted_where_they_are_known() -> None:
    class Stream(IterableDataset[int]):
        def __iter__(self) -> Iterator[int]:
            return iter(range(3))

    assert count_batches(loader(), None) == 5
    assert count_batches(loader(), 2) == 2
    assert count_batches(DataLoader(Stream()), None) is None
    assert feed(DataLoader(Stream())).steps_per_epoch is None
    assert feed([1]).samples_per_step is None


class Noisy(Dataset[Tensor]):
    """Draws from every generator that is seeded for it."""

    def __len__(self) -> int:
        return 11

    def __getitem__(self, index: int) -> Tensor:
        values = [index, random.random(), np.random.rand(), torch.rand(()).item()]
        return torch.tensor(values, dtype=torch.float64)


class Stream(IterableDataset[Tensor]):
    """Knows where it is, and draws."""

    def __init__(self) -> None:
        self.position = 0
        self.reads = 0

    def state_dict(self) -> dict[str, int]:
        return {"position": self.position}

    def load_state_dict(self, state: dict[str, int]) -> None:
        self.position = state["position"]

    def __iter__(self) -> Iterator[Tensor]:
        while self.position < 11:
            self.reads += 1
            self.position += 1
            yield torch.tensor([self.position, random.random()])
        self.position = 0


SOURCES: dict[str, Any] = {
    "gathered": lambda: loader(11, shuffle=True),
    "gathered in order": lambda: loader(11),
    "augmented": lambda: DataLoader(Noisy(), batch_size=2, shuffle=True),
    "full batches": lambda: DataLoader(Noisy(), batch_size=2, shuffle=True, drop_last=True),
    "weighted": lambda: DataLoader(
        Noisy(), batch_size=2, sampler=WeightedRandomSampler([1.0] * 11, 11)
    ),
    "own sampler": lambda: DataLoader(Noisy(), batch_size=2, sampler=[3, 1, 4, 1, 5, 9, 2]),
    "iterable": lambda: DataLoader(Stream(), batch_size=2),
    "a list": lambda: [torch.tensor([number]) for number in range(6)],
}


def numbers(step: Any) -> list[Any]:
    parts = [batch[0] if isinstance(batch, list) else batch for batch in step]
    return [part.tolist() for part in parts]


def test_an_epoch_continues_from_every_position() -> None:
    for kind, accumulate, limit in product(SOURCES, [1, 3], [None, 4]):
        whole = feed(SOURCES[kind](), accumulate=accumulate, limit=limit)
        list(whole.epoch(0))
        steps, states = [], [(0, whole.samples, whole.loader_state())]
        for step in whole.epoch(1):
            steps.append(numbers(step))
            states.append((whole.next_position, whole.samples, whole.loader_state()))
        for done, (position, samples, state) in enumerate(states):
            one = feed(SOURCES[kind](), accumulate=accumulate, limit=limit)
            one.start_at(1, position, samples, loader=state)
            assert one.next_position == position
            case = kind, accumulate, limit, position
            assert [numbers(step) for step in one.epoch(1)] == steps[done:], case
            assert (one.samples, one.is_complete) == (whole.samples, True), case
            assert one.next_position == whole.next_position, case


def test_an_interrupted_epoch_continues_after_the_step() -> None:
    for kind, limit in product(SOURCES, [None, 3]):
        whole = [numbers(step) for step in feed(SOURCES[kind](), limit=limit).epoch(1)]
        one, given = feed(SOURCES[kind](), limit=limit), []
        while not one.is_complete:
            for step in one.epoch(1):
                given.append(numbers(step))
                if len(given) in (1, 2, len(whole)):
                    one.interrupt()
        assert given == whole, (kind, limit)


def test_other_numbers_of_batches_per_step_count_after_an_interruption() -> None:
    one, sizes = feed(loader(14)), []
    while not one.is_complete:
        for step in one.epoch(0):
            sizes.append(len(step))
            if one.next_position == 2:
                one.accumulate = 3
                one.interrupt()
    assert sizes == [1, 1, 3, 2]


def test_several_resumes_in_one_epoch_change_nothing() -> None:
    whole = [numbers(step) for step in feed(SOURCES["augmented"]()).epoch(2)]
    given, position, samples = [], 0, 0
    for count in (1, 2, 1, 2):
        one = feed(SOURCES["augmented"]())
        one.start_at(2, position, samples)
        given += [numbers(step) for step in islice(one.epoch(2), count)]
        position, samples = one.next_position, one.samples
    assert given == whole
    assert samples == 11


def test_another_number_of_workers_after_a_resume_changes_nothing() -> None:
    whole = [numbers(step) for step in feed(SOURCES["augmented"]()).epoch(2)]
    one = feed(DataLoader(Noisy(), batch_size=2, shuffle=True, num_workers=1))
    one.start_at(2, 3, 6)
    assert [numbers(step) for step in one.epoch(2)] == whole[3:]


def test_only_the_resumed_epoch_starts_at_a_position() -> None:
    one = feed(loader(10))
    one.start_at(1, 3, 6)
    assert [one.position for _ in one.epoch(1)] == [3, 4]
    assert [one.position for _ in one.epoch(2)] == [0, 1, 2, 3, 4]
    one.start_at(1, 3, 6)
    assert len(list(one.epoch(4))) == 5


def test_an_epoch_that_was_at_its_end_is_complete_at_once() -> None:
    one = feed(loader(10))
    one.start_at(1, 5, 10)
    assert list(one.epoch(1)) == []
    assert one.is_complete
    unknown = feed(DataLoader(Stream(), batch_size=2))
    unknown.start_at(0, 6, 11, loader={"owner": {"position": 0}, "is_over": True})
    assert list(unknown.epoch(0)) == []
    assert unknown.is_complete


def test_only_loaders_that_need_it_are_asked_for_their_state() -> None:
    class Stateful(Noisy):
        def state_dict(self) -> dict[str, int]:
            raise AssertionError

        def load_state_dict(self, state: object) -> None:
            raise AssertionError

    assert feed(DataLoader(Stateful())).loader_state() is None
    assert feed([1]).loader_state() is None
    assert feed(DataLoader(Stream())).loader_state() == {
        "owner": {"position": 0},
        "is_over": False,
    }


def test_reading_touches_no_global_generator() -> None:
    for kind in SOURCES:
        generators, one = HostGenerators(), feed(SOURCES[kind]())
        before = generators.take()
        for _ in one.epoch(0):
            assert before.equals(generators.take()), kind


def test_what_is_drawn_for_a_sample_differs_between_epochs() -> None:
    one = feed(DataLoader(Noisy(), batch_size=11))
    (first,), (second,) = (numbers(step) for epoch in (0, 1) for step in one.epoch(epoch))
    assert not {row[1] for row in first} & {row[1] for row in second}


def test_an_evaluation_of_the_training_loader_does_not_disturb_the_epoch() -> None:
    whole = [numbers(step) for step in feed(SOURCES["augmented"]()).epoch(0)]
    one, given, seen = feed(SOURCES["augmented"]()), [], []
    for step in one.epoch(0):
        given.append(numbers(step))
        seen.append([batch.tolist() for batch in one.open(one.loader, 3, DataPass(7))])
    assert given == whole
    assert seen == [seen[0]] * 6
