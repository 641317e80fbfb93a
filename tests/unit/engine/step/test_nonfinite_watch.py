"""Tests of knowing which steps had gradients that are not finite."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import torch
from torch.utils.data import DataLoader, IterableDataset

from engine.parts import Points, Sums, adder, fit, make_run, numbers
from epochal.engine.device.seeding import derive_seed
from epochal.engine.step.nonfinite_watch import NonfiniteWatch

if TYPE_CHECKING:
    from collections.abc import Iterator

    from epochal.engine.run import Run

ACTIONS = ["skip", "stop", "rollback"]
NAN = float("nan")


class Poisoned(Sums):
    """Its loss is not a number for some batches, each given as epoch and index."""

    def __init__(self, *bad: tuple[int, int], **options: Any) -> None:
        super().__init__(**{"count": 48, "val": 0, **options})
        self.bad = bad

    def run_start(self, run: Run) -> None:
        self._run = run

    def batch_loss(self, out: Any, batch: Any) -> dict[str, Any]:
        loss, count = super().batch_loss(out, batch)["loss"]
        is_bad = (self._run.epoch, self._run.batch_index) in self.bad
        return {"loss": (loss * NAN if is_bad else loss, count)}


class Stream(IterableDataset[Any]):
    def __iter__(self) -> Iterator[Any]:
        yield from numbers(48)


def watched(
    task: Sums, action: str = "skip", *, precision: str = "fp32", **options: Any
) -> tuple[Run, Points]:
    model, points = adder(), Points()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, fused=True)
    given = {"for_": "2ep", "setting": {"writer": points}} | options
    engine = {"on_nonfinite": action, "precision": precision}
    return make_run(task, model, parts={"optimizer": optimizer}, engine=engine, **given), points


def events(points: Points) -> list[tuple[Any, ...]]:
    found = [one for one in points.events if one["kind"] == "nonfinite"]
    return [(one["step"], one["epoch"], one["batches"]) for one in found]


def order(epoch: int, count: int = 48) -> list[int]:
    """What a shuffled loader reads in an epoch of a run whose seed is 0."""
    generator = torch.Generator().manual_seed(derive_seed(0, "order", epoch))
    return torch.randperm(count, generator=generator).tolist()


@pytest.mark.parametrize("workers", [None, 0])
def test_each_bad_step_is_recorded_with_its_samples(
    workers: int | None, caplog: pytest.LogCaptureFixture
) -> None:
    task = Poisoned((0, 3), (0, 11), (1, 4))
    if workers is not None:  # read one by one, not gathered
        data = list(zip(*numbers(48).tensors, strict=True))
        task.train_loader = DataLoader(data, batch_size=4, shuffle=True)  # type: ignore[arg-type]
    run, points = watched(task)
    fit(run)
    assert events(points) == [(4, 1, [3]), (12, 1, [11]), (17, 2, [4])]
    assert [one["samples"] for one in points.events] == [
        [order(0)[12:16]],
        [order(0)[44:]],
        [order(1)[16:20]],
    ]
    assert {one["action"] for one in points.events} == {"skip"}
    listed = ", ".join(map(str, order(0)[12:16]))
    assert f"step 4: its gradient is not finite; epoch 1, batch 3, samples {listed}" in caplog.text


def test_the_samples_are_those_that_the_step_had() -> None:
    seen: dict[int, Any] = {}

    class Noting(Poisoned):
        def batch_start(self, run: Run, split: str, index: int, batch: Any) -> None:
            seen[run.step + 1] = batch[0].clone()

    run, points = watched(Noting((0, 2), (1, 7)))
    fit(run)
    for event in points.events:
        rows = numbers(48).tensors[0][event["samples"][0]]  # type: ignore[index]
        assert torch.equal(rows, seen[event["step"]])  # type: ignore[index]


def test_microbatches_are_told_apart() -> None:
    run, points = watched(Poisoned((0, 4), batch_size=3), optim={"accumulate": 3}, for_="1ep")
    fit(run)
    assert events(points) == [(2, 1, [3, 4, 5])]
    assert points.events[0]["samples"] == [order(0)[first : first + 3] for first in (9, 12, 15)]


def test_the_short_last_step_of_an_epoch_is_told_with_what_it_had() -> None:
    run, points = watched(Poisoned((0, 15), batch_size=3), optim={"accumulate": 5}, for_="1ep")
    fit(run)
    assert events(points) == [(4, 1, [15])]


@pytest.mark.parametrize("kind", ["iterable", "sampler"])
def test_of_data_without_known_indices_the_batches_are_told(
    kind: str, caplog: pytest.LogCaptureFixture
) -> None:
    task = Poisoned((0, 5))
    if kind == "iterable":
        task.train_loader = DataLoader(Stream(), batch_size=4)
    else:
        batches = [[index, index + 1] for index in range(0, 48, 2)]
        task.train_loader = DataLoader(numbers(48), batch_sampler=batches)  # type: ignore[arg-type]
    run, points = watched(task, for_="1ep")
    fit(run)
    assert events(points) == [(6, 1, [5])]
    assert "samples" not in points.events[0]
    assert "step 6: its gradient is not finite; epoch 1, batch 5\n" in caplog.text


@pytest.mark.parametrize("action", ["stop", "rollback"])
def test_a_run_that_ends_tells_the_first_step_and_records_what_followed(
    action: str, caplog: pytest.LogCaptureFixture
) -> None:
    run, points = watched(Poisoned((0, 3), (0, 4), (0, 6)), action)
    assert fit(run).reason == "diverged"
    assert events(points) == [(4, 1, [3]), (5, 1, [4]), (7, 1, [6])]
    assert caplog.text.count("its gradient is not finite") == 1


def test_a_large_step_is_recorded_in_short(caplog: pytest.LogCaptureFixture) -> None:
    task = Poisoned((0, 0), count=1500, batch_size=600)
    run, points = watched(task, optim={"accumulate": 2}, for_="1ep")
    fit(run)
    assert [len(part) for part in points.events[0]["samples"]] == [600, 400]  # type: ignore[attr-defined]
    assert points.events[0]["samples_left_out"] == 200
    assert "and 1192 more" in caplog.text


def test_a_run_that_skips_everything_does_not_fill_its_record(
    caplog: pytest.LogCaptureFixture,
) -> None:
    bad = [(epoch, index) for epoch in range(10) for index in range(12)]
    run, points = watched(Poisoned(*bad), for_="10ep")
    fit(run)
    assert len(events(points)) == 100
    assert "that was the 100th such step; no more are listed" in caplog.text


@pytest.mark.parametrize("action", ACTIONS)
def test_an_overflow_of_fp16_is_nobodys_fault(action: str) -> None:
    run, points = watched(Poisoned((0, 3)), action, precision="fp16", for_="1ep")
    assert fit(run).status == "finished"
    assert not points.events


@pytest.mark.parametrize(("action", "looks"), [("skip", 2), ("stop", 10)])
def test_most_steps_are_not_looked_at(
    action: str, looks: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[int] = []
    real = NonfiniteWatch._judge

    def judge(self: NonfiniteWatch, run: Run, *found: Any) -> None:
        seen.append(run.step)
        real(self, run, *found)

    monkeypatch.setattr(NonfiniteWatch, "_judge", judge)
    run, _ = watched(Poisoned(count=400), action, for_="100st")
    fit(run)
    assert seen == list(range(100 // looks, 101, 100 // looks))
