"""Tests of runs whose losses or weights are not finite until their end."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import torch

from engine.parts import Sums, adder, fit, make_run
from epochal.components.average import Ema
from epochal.engine import Monitor, Run

if TYPE_CHECKING:
    import pytest


class Broken(Sums):
    """The loss of some steps, and of all further ones unless told otherwise, is not a number."""

    def __init__(self, first: int, last: int = 10**6) -> None:
        super().__init__()
        self._bad_steps, self._calls = range(first, last + 1), 0

    def batch_loss(self, out: dict[str, Any], batch: Any) -> dict[str, Any]:
        loss, count = super().batch_loss(out, batch)["loss"]
        self._calls += 1
        return {"loss": (loss * math.nan if self._calls in self._bad_steps else loss, count)}


class Detached(Sums):
    """The loss is not a number, and its gradient is zero."""

    def batch_loss(self, out: dict[str, Any], batch: Any) -> dict[str, Any]:
        loss, count = super().batch_loss(out, batch)["loss"]
        return {"loss": (loss.clamp(min=0, max=0) + math.nan, count)}


def test_a_run_that_is_not_finite_at_its_end_has_diverged() -> None:
    for task, engine, what in (
        (Broken(7), {}, "loss and weights are not finite since about step "),
        (Detached(), {}, "the loss is not finite since about step "),
        (Broken(6), {"on_nonfinite": "skip"}, "all updates of the last epoch were skipped"),
    ):
        result = fit(make_run(task, for_="2ep", engine=engine))
        assert (result.status, result.reason) == ("diverged", "diverged"), engine
        assert result.message.startswith(what)
        assert result.message.endswith(
            "\n  try a smaller optim.lr, or optim.clip=1.0; --debug finds its origin"
        )
        assert result.steps == 10


def test_warning_says_what_to_try_and_what_would_end_the_run(
    caplog: pytest.LogCaptureFixture,
) -> None:
    for is_debug, origin in ((False, "; --debug finds its origin"), (True, "")):
        caplog.clear()
        run = make_run(Broken(1), for_="1ep")
        run.is_debug = is_debug
        result = fit(run)
        (warning,) = (one for one in caplog.messages if one.startswith("train/loss is nan"))
        advice = f"try a smaller optim.lr, or optim.clip=1.0{origin}"
        assert f"; {advice}; engine.on_nonfinite=stop ends such a run" in warning
        assert result.message.endswith(f"\n  {advice}")


def test_a_run_that_recovers_has_finished() -> None:
    result = fit(make_run(Broken(2, 8), for_="2ep", engine={"on_nonfinite": "skip"}))
    assert (result.status, result.reason, result.message) == ("finished", "max_epochs", "")


def test_weights_that_are_not_finite_are_never_the_best() -> None:
    class Scored(Broken):
        def epoch_metric(self, split: str) -> dict[str, float]:
            return {"score": float(self._calls)} if split == "val" else {}

    better: list[float] = []
    parts = {"monitor": Monitor("val/score", "max")}
    run = make_run(Scored(8), for_="4ep", parts=parts)
    run.on("better_model", lambda run, value: better.append(value))
    result = fit(run)
    assert better == [5.0]
    assert (result.status, result.best) == ("diverged", 5.0)


def test_an_average_that_is_not_finite_is_never_the_best() -> None:
    average, better = Ema(), []
    run = make_run(for_="2ep", parts={"monitor": Monitor("val_ema/mae"), "average": average})
    run.on("better_model", lambda run, value: better.append(run.step))

    def spoil(run: Run) -> None:
        if run.step == 8:
            average.state_tensors()["0.bias"].fill_(math.nan)

    run.on("step_end", spoil)
    assert fit(run).message.startswith("the weights are not finite")
    assert better == [5]


def test_frozen_weights_may_hold_anything() -> None:
    model = adder()
    model.mask = torch.nn.Parameter(torch.tensor(-math.inf), requires_grad=False)
    assert fit(make_run(model=model, for_="1ep")).reason == "max_epochs"
