"""Tests of the search for the largest batch."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import torch
from engine.parts import Sums, adder, make_run, weights
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

import epochal as ep
from epochal.engine import RunResult, Train
from epochal.engine.execute import execute
from epochal.errors import ConfigError, DataError, TaskError
from epochal.experiment.tools.find_batch import (
    STEPS_PER_TRY,
    BatchSearchResult,
    BatchTry,
    LargestBatchSearch,
    search_largest,
)
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


def test_given_objects_are_restored() -> None:
    model = TinyModel()
    before = [parameter.clone() for parameter in model.parameters()]
    experiment = ep.Experiment(task=TinyTask(), model=model, optim={"type": "AdamW"})
    assert ep.find_batch(experiment, limit=16).samples == 16
    assert all(map(torch.equal, before, model.parameters()))


def test_unusable_configs_and_limits_are_refused(shop: Path) -> None:
    with pytest.raises(ConfigError, match=r"find-batch: needs a device with its own(.|\n)*--limit"):
        ep.find_batch("config.yaml", device="cpu")
    with pytest.raises(ConfigError, match=r"--limit: must be at least 1, got 0"):
        ep.find_batch("config.yaml", limit=0)
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


@given(st.integers(0, 300), st.integers(1, 300))
def test_the_largest_number_that_fits_is_found_in_few_tries(room: int, limit: int) -> None:
    tried: list[int] = []

    def fits(samples: int) -> bool:
        tried.append(samples)
        return samples <= room

    assert search_largest(fits, limit) == min(room, limit)
    assert max(tried) <= limit
    assert len(set(tried)) == len(tried) <= 20


class Limited(Sums):
    """Memory has room for some samples."""

    room = 21
    error: BaseException = torch.OutOfMemoryError("no more room")

    def batch_forward(self, model: nn.Module, batch: list[Tensor]) -> dict[str, Tensor]:
        if len(batch[0]) > self.room:
            raise self.error
        return super().batch_forward(model, batch)


def look(task: Any, model: nn.Module | None = None, *, limit: int = 99, **options: Any) -> Any:
    model = adder() if model is None else model
    run = make_run(task, model, for_="1ep", **options)
    return execute(run, LargestBatchSearch(Train(), limit=limit), raise_errors=True).value


def test_steps_are_taken_until_memory_runs_out() -> None:
    for error in (
        torch.OutOfMemoryError("no more room"),
        MemoryError(),
        RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 9 bytes"),
    ):
        task = Limited()
        task.error = error
        tries = look(task)
        assert max(one.samples for one in tries if one.fits) == 21
        assert min(one.samples for one in tries if not one.fits) == 22
    task.room = 0
    assert [(one.samples, one.fits) for one in look(task)] == [(2, False), (1, False)]


def test_errors_other_than_a_lack_of_memory_are_raised() -> None:
    task = Limited()
    task.error = RuntimeError("shapes do not fit")
    with pytest.raises(RuntimeError, match="shapes"):
        look(task)


def test_model_optimizer_and_generators_are_restored() -> None:
    model = nn.Sequential(nn.Linear(3, 8), nn.BatchNorm1d(8), nn.Dropout(0.5), nn.Linear(8, 1))
    before = {name: one.clone() for name, one in model.state_dict().items()}
    optimizer = torch.optim.Adam(model.parameters())
    generator = torch.get_rng_state()
    task = Limited()
    look(task, model, parts={"optimizer": optimizer}, limit=8)
    assert all(torch.equal(one, before[name]) for name, one in model.state_dict().items())
    assert all(parameter.grad is None for parameter in model.parameters())
    assert not any(state.get("exp_avg", torch.zeros(1)).any() for state in optimizer.state.values())
    assert torch.equal(torch.get_rng_state(), generator)


def test_steps_update_the_weights_too() -> None:
    model = adder()
    seen: list[Tensor] = []

    class Looking(Limited):
        def batch_forward(self, model: nn.Module, batch: list[Tensor]) -> dict[str, Tensor]:
            seen.append(weights(model))
            return super().batch_forward(model, batch)

    look(Looking(), model, limit=1)
    assert len(seen) == STEPS_PER_TRY
    assert not torch.equal(seen[0], seen[1])


def test_batches_without_rows_are_refused() -> None:
    task = Limited()
    task.train_loader = [{"graph": object()}]  # type: ignore[assignment]  # of any kind
    with pytest.raises(DataError, match="cannot be resized: a dict does not show"):
        look(task)
