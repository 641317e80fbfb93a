"""Tests of the warning about losses that are no numbers."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from engine.parts import Sums, fit, make_run
from epochal.engine.finite import LossWatch

if TYPE_CHECKING:
    import pytest


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
    watch = LossWatch(make_run())
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
