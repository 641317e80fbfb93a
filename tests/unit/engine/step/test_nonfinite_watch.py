"""Tests of the reports about gradients and losses that are not finite."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import pytest
import torch
from torch.utils.data import DataLoader, IterableDataset

from engine.parts import Points, Sums, adder, fit, make_run, numbers
from epochal.engine.device.seeding import derive_seed
from epochal.engine.step.debug_losses import NonfiniteLossWarner
from epochal.engine.step.nonfinite_watch import NonfiniteWatch

if TYPE_CHECKING:
    from collections.abc import Iterator

    from epochal.engine.run.engine_run import EngineRun

ACTIONS = ["skip", "stop", "rollback"]
NAN = float("nan")


class Poisoned(Sums):
    """Its loss is not a number for some batches, each given as epoch and index."""

    def __init__(self, *bad: tuple[int, int], **options: Any) -> None:
        super().__init__(**{"count": 48, "val": 0, **options})
        self.bad = bad

    def run_start(self, run: EngineRun) -> None:
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
) -> tuple[EngineRun, Points]:
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


def test_the_samples_of_microbatches_are_listed_separately() -> None:
    run, points = watched(Poisoned((0, 4), batch_size=3), optim={"accumulate": 3}, for_="1ep")
    fit(run)
    assert events(points) == [(2, 1, [3, 4, 5])]
    assert points.events[0]["samples"] == [order(0)[first : first + 3] for first in (9, 12, 15)]


def test_the_short_last_step_of_an_epoch_lists_only_its_batches() -> None:
    run, points = watched(Poisoned((0, 15), batch_size=3), optim={"accumulate": 5}, for_="1ep")
    fit(run)
    assert events(points) == [(4, 1, [15])]


@pytest.mark.parametrize("kind", ["iterable", "sampler"])
def test_data_without_known_indices_reports_batches_only(
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
def test_a_run_that_ends_logs_the_first_bad_step_and_records_all(
    action: str, caplog: pytest.LogCaptureFixture
) -> None:
    run, points = watched(Poisoned((0, 3), (0, 4), (0, 6)), action)
    assert fit(run).reason == "diverged"
    assert events(points) == [(4, 1, [3]), (5, 1, [4]), (7, 1, [6])]
    assert caplog.text.count("its gradient is not finite") == 1


def test_the_samples_of_a_large_step_are_truncated(caplog: pytest.LogCaptureFixture) -> None:
    task = Poisoned((0, 0), count=1500, batch_size=600)
    run, points = watched(task, optim={"accumulate": 2}, for_="1ep")
    fit(run)
    assert [len(part) for part in points.events[0]["samples"]] == [600, 400]  # type: ignore[attr-defined]
    assert points.events[0]["samples_left_out"] == 200
    assert "and 1192 more" in caplog.text


def test_at_most_a_hundred_bad_steps_are_reported(
    caplog: pytest.LogCaptureFixture,
) -> None:
    bad = [(epoch, index) for epoch in range(10) for index in range(12)]
    run, points = watched(Poisoned(*bad), for_="10ep")
    fit(run)
    assert len(events(points)) == 100
    assert "step 100 is the 100th such step; no more are reported" in caplog.text


@pytest.mark.parametrize("action", ACTIONS)
def test_an_fp16_overflow_is_not_reported(action: str) -> None:
    run, points = watched(Poisoned((0, 3)), action, precision="fp16", for_="1ep")
    assert fit(run).status == "finished"
    assert not points.events


@pytest.mark.parametrize(("action", "looks"), [("skip", 2), ("stop", 10)])
def test_most_steps_are_not_checked(
    action: str, looks: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[int] = []
    real = NonfiniteWatch._handle_bad_steps

    def judge(self: NonfiniteWatch, run: EngineRun, *found: Any) -> None:
        seen.append(run.step)
        real(self, run, *found)

    monkeypatch.setattr(NonfiniteWatch, "_handle_bad_steps", judge)
    run, _ = watched(Poisoned(count=400), action, for_="100st")
    fit(run)
    assert seen == list(range(100 // looks, 101, 100 // looks))


class Diverging(Sums):
    """Its loss and one of its metrics break in the third step."""

    steps = 0

    def batch_loss(self, out: Any, batch: Any) -> Any:
        self.steps += 1
        loss, count = super().batch_loss(out, batch)["loss"]
        return {"loss": (loss * (math.inf if self.steps == 3 else 1.0), count)}


def test_a_nonfinite_loss_is_reported_once_when_it_is_read(
    caplog: pytest.LogCaptureFixture,
) -> None:
    run = make_run(Diverging(), for_="2ep", eval_every=0, sanity_batches=0)
    window = run.meter.window()
    run.on("step_end", window.read, every="2st")
    result = fit(run)
    warning, end = caplog.messages
    assert end.startswith("diverged: loss and weights are not finite since about step 4")
    assert warning.startswith("train/loss is nan since about step 4: the run continues")
    assert "try a smaller optim.lr" in warning
    assert math.isnan(result.metrics["train/epoch/loss"])


def test_metrics_other_than_losses_may_be_nonfinite(caplog: pytest.LogCaptureFixture) -> None:
    watch = NonfiniteLossWarner(make_run())
    watch("acc", math.nan)
    assert caplog.messages == []
    watch("aux_loss", math.nan)
    assert caplog.messages[0].startswith("train/aux_loss is nan since about step 0")


def test_the_warning_of_a_nonfinite_loss_names_skipped_updates(
    caplog: pytest.LogCaptureFixture,
) -> None:
    engine = {"on_nonfinite": "skip"}
    fit(make_run(Diverging(), for_="1ep", eval_every=0, sanity_batches=0, engine=engine))
    (warning,) = [message for message in caplog.messages if "train/loss" in message]
    assert warning == (
        "train/loss is inf since about step 5: such updates are skipped; train/skipped is their "
        "share"
    )


class Masked(Sums):
    """Counts its items; the last step's batches have none."""

    def __init__(self, divisor: str, *, is_empty: bool = True) -> None:
        super().__init__(20, batch_size=4, val=0)
        self.divisor, self.is_empty, self.calls = divisor, is_empty, 0

    def batch_loss(self, out: Any, batch: Any) -> Any:
        self.calls += 1
        mask = torch.full((4, 1), float(self.calls < 5 or not self.is_empty))
        count = mask.sum()
        errors = ((out["sum"] - batch[1]) ** 2 * mask).sum()
        return {
            "loss": (errors / (count if self.divisor == "count" else count.clamp(min=1)), count)
        }


@pytest.mark.parametrize("accumulate", [1, 2])
def test_a_nonfinite_loss_of_an_empty_batch_is_reported(
    accumulate: int, caplog: pytest.LogCaptureFixture
) -> None:
    result = fit(make_run(Masked("count"), for_="1ep", optim={"accumulate": accumulate}))
    warning, end = caplog.messages
    assert end.startswith("diverged: the weights are not finite")
    assert warning.startswith("train/loss of a batch without items is nan since about step")
    assert "count.clamp(min=1)" in warning
    assert set(result.metrics) == {"train/epoch/loss", "train/epoch/mae"}


@pytest.mark.parametrize(
    "task", [Masked("clamped count"), Masked("count", is_empty=False)], ids=["empty", "full"]
)
def test_empty_batches_with_a_finite_loss_are_not_reported(
    task: Masked, caplog: pytest.LogCaptureFixture
) -> None:
    fit(make_run(task, for_="1ep"))
    assert caplog.messages == []
