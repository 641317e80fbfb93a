"""Tests of processes of loaders that die."""

from __future__ import annotations

import errno
import gc
import multiprocessing
import os
import signal
from itertools import count
from typing import TYPE_CHECKING, Any

import pytest
from torch import Tensor, zeros
from torch.utils.data import DataLoader, Dataset

from epochal.data.batching import PadCollate
from epochal.engine.feed.feed import iter_batches
from epochal.errors import DataError

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture
def loaders_are_deleted(
    older_objects_are_kept: None, dead_workers_are_noticed: None
) -> Iterator[None]:
    """Delete the loaders here: each waits for its worker, which is dead."""
    yield
    gc.collect()


class Killed(Dataset[Tensor]):
    def __len__(self) -> int:
        return 4

    def __getitem__(self, index: int) -> Tensor:
        os.kill(os.getpid(), signal.SIGKILL)
        raise AssertionError


class Faulty(Killed):
    def __getitem__(self, index: int) -> Tensor:
        raise RuntimeError("a fault of the dataset")


@pytest.mark.usefixtures("loaders_are_deleted")
def test_a_killed_worker_is_an_error_of_the_data() -> None:
    with pytest.raises(
        DataError, match=r"val_loader: a worker process of the loader died"
    ) as caught:
        list(iter_batches(DataLoader(Killed(), num_workers=1), "val_loader", None))
    assert isinstance(caught.value.__cause__, RuntimeError)


@pytest.mark.usefixtures("loaders_are_deleted")
def test_an_error_of_the_dataset_itself_passes() -> None:
    for workers in [0, 1]:
        with pytest.raises(RuntimeError, match="a fault of the dataset"):
            list(iter_batches(DataLoader(Faulty(), num_workers=workers), "train_loader", None))


def test_samples_of_different_shapes_get_a_hint() -> None:
    for samples in ([zeros(2), zeros(3)], [[1, 2], [3]]):
        loader = DataLoader(samples, batch_size=2)  # type: ignore[arg-type]
        with pytest.raises(RuntimeError, match="equal size") as caught:
            list(iter_batches(loader, "train_loader", None))
        (note,) = caught.value.__notes__
        assert note == "train_loader: the samples of a batch differ in shape; set collate: pad"


@pytest.mark.usefixtures("loaders_are_deleted")
def test_samples_with_other_keys_or_without_a_value_get_a_hint() -> None:
    uneven, empty = [{"x": 1, "y": 2}, {"x": 1}], [{"x": 1}, {"x": None}]
    for samples, workers, collate, hint in (
        (uneven, 0, None, "have different keys"),
        (uneven, 1, None, "have different keys"),
        (uneven, 0, PadCollate(), "have different keys"),
        (empty[::-1], 0, None, "has a value None"),
        (empty[::-1], 1, None, "has a value None"),
        (empty, 0, None, "has a value None"),
        ([{"x": 0.5}, {"x": None}], 0, None, "has a value None"),
    ):
        loader = DataLoader(samples, batch_size=2, num_workers=workers, collate_fn=collate)  # type: ignore[arg-type]
        with pytest.raises((KeyError, TypeError, RuntimeError)) as caught:
            list(iter_batches(loader, "train_loader", None))
        assert [hint in note for note in caught.value.__notes__] == [True]
    with pytest.raises(KeyError) as caught:
        list(iter_batches(DataLoader(Keyless()), "train_loader", None))  # type: ignore[arg-type]
    assert not getattr(caught.value, "__notes__", ())


class Keyless:
    """Its samples fail with an error of their own."""

    def __len__(self) -> int:
        return 1

    def __getitem__(self, index: int) -> int:
        return {"a": 1}["b"]


class Endless:
    """Endless batches without a length."""

    def __iter__(self) -> Iterator[int]:
        return count()


def test_a_loader_without_length_that_never_ends_is_refused(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("epochal.engine.feed.feed.MAX_UNKNOWN_BATCHES", 50)
    with pytest.raises(DataError, match=r"val_loader: has no length.* 50 batches\n  set train.lim"):
        list(iter_batches(Endless(), "val_loader", None, must_end=True))
    assert "val_loader: 5 batches and no length; if it never ends, set" in caplog.text
    assert len(list(iter_batches(Endless(), "val_loader", 60, must_end=True))) == 60
    known = iter_batches([0] * 60, "val_loader", None, must_end=True)
    assert len(list(known)) == 60


class Broken(DataLoader[Tensor]):
    """Its line to a worker breaks, as when one dies while a batch is on its way."""

    def __init__(self, error: Exception, *, workers: int) -> None:
        super().__init__(Killed(), num_workers=workers)
        self._error = error

    def __iter__(self) -> Any:
        raise self._error


def test_a_worker_that_dies_while_a_batch_is_on_its_way_is_an_error_of_the_data() -> None:
    for error in [ConnectionResetError(104, "reset by peer"), EOFError()]:
        with pytest.raises(DataError, match="a worker process of the loader died"):
            list(iter_batches(Broken(error, workers=1), "train_loader", None))
        with pytest.raises(type(error)):  # nothing that a worker had to do with
            list(iter_batches(Broken(error, workers=0), "train_loader", None))


def test_a_batch_that_arrives_in_part_is_an_error_of_the_data() -> None:
    ours, theirs = multiprocessing.Pipe()
    theirs.send_bytes(b"half of a pickle")

    class Cut(Broken):
        def __iter__(self) -> Any:
            ours.recv()

    with pytest.raises(DataError, match="a worker process of the loader died"):
        list(iter_batches(Cut(EOFError(), workers=1), "train_loader", None))


def test_no_memory_for_a_worker_is_no_error_of_the_data() -> None:
    error = OSError(errno.ENOMEM, "cannot fork")
    with pytest.raises(OSError, match="cannot fork"):
        list(iter_batches(Broken(error, workers=1), "train_loader", None))


class Short(Killed):
    def __getitem__(self, index: int) -> Tensor:
        raise EOFError("a file of the dataset is cut off")


@pytest.mark.usefixtures("loaders_are_deleted")
def test_a_broken_line_that_the_dataset_itself_reports_passes() -> None:
    with pytest.raises(EOFError, match="a file of the dataset is cut off"):
        list(iter_batches(DataLoader(Short(), num_workers=1), "train_loader", None))
