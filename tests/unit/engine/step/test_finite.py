"""Tests of the warning about losses that are no numbers."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch

from engine.parts import Sums, fit, make_run
from epochal.engine.step.nonfinite_watch import NonfiniteLossWarner


class Diverging(Sums):
    """Its loss and one of its metrics break in the third step."""

    steps = 0

    def batch_loss(self, out: Any, batch: Any) -> Any:
        self.steps += 1
        loss, count = super().batch_loss(out, batch)["loss"]
        return {"loss": (loss * (math.inf if self.steps == 3 else 1.0), count)}


def test_a_loss_that_is_not_finite_is_told_once_when_it_is_read(
    caplog: pytest.LogCaptureFixture,
) -> None:
    run = make_run(Diverging(), for_="2ep", eval_every=0, sanity_batches=0)
    window = run.meter.window()
    run.on("step_end", window.read, every="2st")
    result = fit(run)
    (warning,) = caplog.messages
    assert warning.startswith("train/loss is nan since about step 4: the run goes on")
    assert "try a smaller optim.lr" in warning
    assert math.isnan(result.metrics["train/loss"])


def test_the_mean_of_an_epoch_is_enough(caplog: pytest.LogCaptureFixture) -> None:
    fit(make_run(Diverging(), for_="1ep", eval_every=0, sanity_batches=0))
    assert ["since about step 5" in message for message in caplog.messages] == [True]


def test_metrics_may_be_anything(caplog: pytest.LogCaptureFixture) -> None:
    watch = NonfiniteLossWarner(make_run())
    watch("acc", math.nan)
    assert caplog.messages == []
    watch("aux_loss", math.nan)
    assert caplog.messages[0].startswith("train/aux_loss is nan since about step 0")


def test_updates_that_are_left_out_are_told_as_such(caplog: pytest.LogCaptureFixture) -> None:
    engine = {"on_nonfinite": "skip"}
    fit(make_run(Diverging(), for_="1ep", eval_every=0, sanity_batches=0, engine=engine))
    (warning,) = [message for message in caplog.messages if "train/loss" in message]
    assert warning == (
        "train/loss is inf since about step 5: such updates are left out, and train/skipped is "
        "their share"
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
def test_a_batch_without_items_whose_loss_is_no_number_is_told(
    accumulate: int, caplog: pytest.LogCaptureFixture
) -> None:
    result = fit(make_run(Masked("count"), for_="1ep", optim={"accumulate": accumulate}))
    (warning,) = caplog.messages
    assert warning.startswith("train/loss of a batch without items is nan since about step")
    assert "count.clamp(min=1)" in warning
    assert set(result.metrics) == {"train/loss", "train/mae", "train/epoch/loss", "train/epoch/mae"}


@pytest.mark.parametrize(
    "task", [Masked("clamped count"), Masked("count", is_empty=False)], ids=["empty", "full"]
)
def test_batches_whose_loss_is_a_number_are_not_told(
    task: Masked, caplog: pytest.LogCaptureFixture
) -> None:
    fit(make_run(task, for_="1ep"))
    assert caplog.messages == []
