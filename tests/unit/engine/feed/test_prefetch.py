"""Tests of batches that come one ahead: what is sent when, and where errors show."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING

import pytest

from epochal.engine.feed.prefetch import prefetch_one

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator


class Journey:
    """Writes down what happens to batches on their way."""

    def __init__(self, *, lost: object = None) -> None:
        self.recorder: list[str] = []
        self._lost = lost

    def send(self, batch: object) -> str:
        self.recorder.append(f"send {batch}")
        if batch == self._lost:
            raise RuntimeError(f"{batch} was lost")
        return f"sent {batch}"

    def receive(self) -> None:
        self.recorder.append("receive")

    def use(self, batches: Iterable[object]) -> list[object]:
        used = []
        for batch in prefetch_one(batches, self.send, self.receive):
            self.recorder.append(f"use {batch}")
            used.append(batch)
        return used


def test_every_batch_comes_once_in_order_as_it_was_sent() -> None:
    assert Journey().use([1, 2, 3]) == ["sent 1", "sent 2", "sent 3"]


def test_each_batch_is_sent_before_the_one_in_front_of_it_is_used() -> None:
    journey = Journey()
    journey.use([1, 2, 3])
    assert journey.recorder == [
        "send 1",
        "receive",
        "send 2",
        "use sent 1",
        "receive",
        "send 3",
        "use sent 2",
        "receive",
        "use sent 3",
    ]


def test_no_batch_and_one_batch_are_fine() -> None:
    assert Journey().use([]) == []
    assert Journey().use([1]) == ["sent 1"]


def test_a_batch_may_be_anything_even_none() -> None:
    assert list(prefetch_one([None, 0, ""], lambda batch: batch, lambda: None)) == [None, 0, ""]


def numbers(*, fail_at: int) -> Iterator[int]:
    for number in range(5):
        if number == fail_at:
            raise RuntimeError(f"no number {number}")
        yield number


def test_an_error_of_the_loader_shows_where_its_batch_is_due() -> None:
    for place in [0, 1, 3]:
        used: list[object] = []
        with pytest.raises(RuntimeError, match=f"no number {place}"):
            used.extend(prefetch_one(numbers(fail_at=place), lambda batch: batch, lambda: None))
        assert used == list(range(place))


def test_an_error_on_the_way_shows_where_its_batch_is_due() -> None:
    journey = Journey(lost=2)
    with pytest.raises(RuntimeError, match="2 was lost"):
        journey.use([1, 2, 3])
    assert journey.recorder[-1] == "use sent 1"


def test_an_interrupt_is_not_put_off() -> None:
    def interrupted() -> Iterator[int]:
        yield 1
        raise KeyboardInterrupt

    used: list[object] = []
    with pytest.raises(KeyboardInterrupt):
        used.extend(prefetch_one(interrupted(), lambda batch: batch, lambda: None))
    assert used == []


def test_nothing_beyond_a_limit_is_read() -> None:
    journey = Journey()
    source = iter(range(10))
    assert len(journey.use(islice(source, 3))) == 3
    assert next(source) == 3


def test_leaving_early_ends_the_source() -> None:
    ended = []

    def source() -> Iterator[int]:
        try:
            yield from range(10)
        finally:
            ended.append(True)

    batches = prefetch_one(source(), lambda batch: batch, lambda: None)
    assert next(batches) == 0
    del batches
    assert ended == [True]


def test_a_batch_in_use_is_not_kept_alive_for_longer_than_its_step() -> None:
    class Batch:
        alive = 0

        def __init__(self) -> None:
            Batch.alive += 1

        def __del__(self) -> None:
            Batch.alive -= 1

    most = 0
    for batch in prefetch_one((Batch() for _ in range(9)), lambda batch: batch, lambda: None):
        most = max(most, Batch.alive)
        del batch
    assert most == 2
    assert Batch.alive == 0
