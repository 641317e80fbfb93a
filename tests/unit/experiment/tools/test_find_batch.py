"""Tests of how many samples of an experiment fit into memory."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import torch

import epochal as ep
from epochal.engine import RunResult
from epochal.errors import ConfigError, TaskError
from epochal.experiment.tools.find_batch import BatchSearchResult, BatchTry
from epochal.testing import TinyModel, TinyTask
from small_project import write

if TYPE_CHECKING:
    from pathlib import Path

LIMITED = """
import torch
from shop.parts import Points

class Limited(Points):
    def __init__(self, *, room: int = 10) -> None:
        super().__init__()
        self.room = room

    def batch_forward(self, model, batch):
        if len(batch["x"]) > self.room:
            raise torch.OutOfMemoryError("no more room")
        return super().batch_forward(model, batch)
"""


@pytest.fixture
def limited(shop: Path) -> Path:
    write(shop / "shop" / "limited.py", LIMITED)
    write(shop / "limited.yaml", "$BASE: config.yaml\ntask: {type: shop.limited.Limited}\n")
    return shop


def test_the_most_samples_that_fit_are_found_and_nothing_is_written(limited: Path) -> None:
    found = ep.find_batch("limited.yaml", limit=64)
    assert (found.samples, found.advice, found.batch_size, found.limit) == (10, 10, 4, 64)
    assert found.bytes_per_sample is None
    assert not (limited / "runs").exists()
    assert ep.find_batch("limited.yaml", limit=8).samples == 8
    assert ep.find_batch("limited.yaml", overrides=["task.room=0"], limit=8).samples == 0


def test_an_experiment_of_objects_is_left_as_it_was() -> None:
    model = TinyModel()
    before = [parameter.clone() for parameter in model.parameters()]
    experiment = ep.Experiment(task=TinyTask(), model=model, optim={"type": "AdamW"})
    assert ep.find_batch(experiment, limit=16).samples == 16
    assert all(map(torch.equal, before, model.parameters()))


def test_a_cpu_needs_a_limit(shop: Path) -> None:
    with pytest.raises(ConfigError, match=r"find-batch: needs a device with memory(.|\n)*--limit"):
        ep.find_batch("config.yaml", device="cpu")
    with pytest.raises(ConfigError, match=r"--limit: must be at least 1, got 0"):
        ep.find_batch("config.yaml", limit=0)


def test_what_does_not_train_has_no_batch_to_find(shop: Path) -> None:
    with pytest.raises(TaskError, match="takes no steps"):
        ep.find_batch("config.yaml", overrides=["runner=test"], limit=4)


def test_memory_of_a_sample_is_the_slope_of_the_peaks() -> None:
    tries = (
        BatchTry(1, True, 1000),
        BatchTry(2, True, 1100),
        BatchTry(40, True, 4900),
        BatchTry(41, False),
    )
    result = RunResult(status="finished", reason="completed")
    found = BatchSearchResult("a", "cuda", tries, 64, 100, result)
    assert (found.samples, found.advice, found.bytes_per_sample) == (40, 40, 100.0)
    odd = BatchSearchResult("a", "cuda", (BatchTry(45, True, 5),), 64, 100, result)
    assert (odd.advice, odd.bytes_per_sample) == (40, None)
