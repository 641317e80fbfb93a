"""Tests of datasets that take a run into workers, or let every worker read all samples."""

from __future__ import annotations

import logging
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest
import torch
from torch.utils.data import DataLoader, Dataset, IterableDataset, Subset, get_worker_info

import epochal as ep
from epochal.engine.feed.worker_data import find_repeated_samples, refuse_captured_run
from epochal.errors import TaskError
from epochal.testing import TinyModel, TinyTask, tiny_run

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


class Rows(Dataset[Any]):
    """Four samples, and whatever it was given."""

    def __init__(self, **kept: Any) -> None:
        vars(self).update(kept)

    def __len__(self) -> int:
        return 4

    def __getitem__(self, index: int) -> Any:
        return {"x": torch.zeros(4), "label": torch.tensor(0)}


class Stream(IterableDataset[Any]):
    """The same samples in every worker."""

    def __init__(self, source: Any = None) -> None:
        self.source = source

    def __iter__(self) -> Iterator[Any]:
        return iter(Rows()[index] for index in range(4))


def share_of_worker() -> int:
    info = get_worker_info()
    return 0 if info is None else info.id


class Divided(Stream):
    def __iter__(self) -> Iterator[Any]:
        return iter([Rows()[0]] * share_of_worker())


class Saying(Stream):
    splits_by_worker = True


class Keeping:
    """A transform that keeps the run."""

    def __init__(self, run: ep.Run) -> None:
        self.run = run

    def __call__(self, sample: Any) -> Any:
        return sample


def test_a_run_is_found_wherever_a_dataset_holds_it() -> None:
    run = tiny_run()
    cases: dict[str, Any] = {
        "Rows.run is a run": Rows(run=run),
        "Rows.values is the store of a run": Rows(values=run.store),
        "Rows.parts['one'][1] is a run": Rows(parts={"one": [0, run]}),
        "Rows.transform.run is a run": Rows(transform=Keeping(run)),
        "Rows.transform with run is a run": Rows(transform=lambda x: (x, run)),
        "Rows.transform[1] is a run": Rows(transform=partial(max, run)),
        "Rows.transform.__self__.run is a run": Rows(transform=Keeping(run).__call__),
        "Subset.dataset.run is a run": Subset(Rows(run=run), [0]),
    }
    for message, dataset in cases.items():
        refuse_captured_run(DataLoader(dataset))  # without workers it is no other process
        with pytest.raises(TaskError) as caught:
            refuse_captured_run(DataLoader(dataset, num_workers=1))
        assert f"data: {message}" in str(caught.value)
        assert "keep only that value" in str(caught.value)


def test_what_holds_no_run_of_its_own_is_accepted() -> None:
    task = TinyTask()
    task.run = tiny_run()  # type: ignore[attr-defined]  # a task may keep it: workers do not use it
    circle: list[Any] = []
    circle.append(circle)
    rows = Rows(task=task, circle=circle, rows=[[0]] * 10_000, torch=torch)
    refuse_captured_run(DataLoader(rows, num_workers=2))
    refuse_captured_run([1, 2])


class Capturing(TinyTask):
    """Gives the run to its dataset."""

    def __init__(self, dataset: Any) -> None:
        super().__init__()
        self.train_loader = DataLoader(
            dataset, batch_size=2, num_workers=2, multiprocessing_context="fork"
        )

    def setup(self, run: ep.Run) -> None:
        self.train_loader.dataset.run = run


def fit(task: ep.Task) -> ep.RunResult:
    return ep.Experiment(
        task=task,
        model=TinyModel(),
        optim={"type": "SGD"},
        train={"for": "2ep"},
        choices={"no_file": True, "device": "cpu", "raise_errors": False},
    ).fit()


def test_forked_workers_get_no_run_either() -> None:
    for dataset in (Rows(), Saying()):
        result = fit(Capturing(dataset))
        assert (result.exception_type, result.steps) == ("TaskError", 0)
        assert f"{type(dataset).__name__}.run is a run" in result.message


def test_samples_that_every_worker_repeats_are_noticed_in_any_loader(
    caplog: pytest.LogCaptureFixture,
) -> None:
    task = TinyTask()
    task.train_loader = DataLoader(Stream(), batch_size=2, num_workers=2)
    with caplog.at_level(logging.WARNING):
        assert fit(task).steps == 2 * 2 * 2  # epochs, workers, batches of each
    assert caplog.text.count("each of the 2 workers yields every sample of Stream") == 1


def test_a_dataset_that_asks_for_its_worker_gives_no_warning() -> None:
    def text(dataset: Any, workers: int = 2, init: Callable[[int], None] | None = None) -> str:
        loader = DataLoader(dataset, num_workers=workers, worker_init_fn=init)
        return find_repeated_samples(loader)

    assert text(Stream())
    assert text(Stream(), 3).count("3") == 2
    quiet = {
        "it says so": text(Saying()),
        "a function that it calls asks": text(Divided()),
        "the dataset that it reads asks": text(Stream(Divided())),
        "one worker": text(Stream(), 1),
        "a worker_init_fn may choose": text(Stream(), init=print),
        "it is not iterable": text(Rows()),
        "it is no DataLoader": find_repeated_samples([1]),
    }
    assert not {why for why, found in quiet.items() if found}
