from __future__ import annotations

import logging
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from engine.parts import Sums, adder, fit, make_run, weights
from epochal.engine.loss.loss import Loss, LossTerm
from epochal.errors import TaskError

DEBUG = {"is_debug": True}


class Bare(Sums):
    batch_loss = None  # type: ignore[assignment]


class Broken(torch.autograd.Function):
    """Works forwards only."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return x.mean()

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        raise RuntimeError("the way back is closed")


def broken(out: Any) -> Tensor:
    return Broken.apply(out["sum"])


def endless(out: Any) -> Tensor:
    return (out["sum"] * 0).sqrt().mean()  # finite, with a gradient that is not


def lost(out: Any) -> Tensor:
    return out["sum"].mean() * float("nan")


def terms(extra: Any) -> Loss:
    return Loss([LossTerm(nn.MSELoss(), name="mse"), LossTerm(extra, name="extra", weight=0.1)])


def test_a_term_whose_backward_pass_fails_is_named() -> None:
    message = (
        r"loss 'extra': its backward pass fails: the way back is closed\n"
        r"  in epoch 1, batch 1: its value is .*, out.sum \(4x1\) from .* to .*, batch.0 \(4x3\)"
    )
    with pytest.raises(TaskError, match=message):
        fit(make_run(Bare(), parts={"loss": terms(broken)}, setting=DEBUG))


def test_without_debugging_the_error_of_torch_is_raised() -> None:
    with pytest.raises(RuntimeError, match="the way back is closed"):
        fit(make_run(Bare(), parts={"loss": terms(broken)}))


@pytest.mark.parametrize(
    ("extra", "text"),
    [
        (lost, "loss 'extra' is nan; gradients that are not finite: 0.weight"),
        (endless, "loss 'extra' is 0.0; gradients that are not finite: 0.weight"),
    ],
)
def test_a_term_that_is_not_finite_is_reported_once(
    extra: Any, text: str, caplog: pytest.LogCaptureFixture
) -> None:
    fit(make_run(Bare(), parts={"loss": terms(extra)}, setting=DEBUG, for_="3st", eval_every=0))
    logged = [one for one in caplog.records if one.name == "epochal.engine.step.debug_losses"]
    assert len([one for one in logged if "'extra'" in one.getMessage()]) == 1
    assert logged[0].levelno == logging.ERROR
    assert logged[0].getMessage().startswith(text)
    assert "in epoch 1, batch 1" in logged[0].getMessage()


def test_the_line_that_made_the_first_nan_is_named(caplog: pytest.LogCaptureFixture) -> None:
    fit(make_run(Bare(), parts={"loss": terms(endless)}, setting=DEBUG, for_="1st", eval_every=0))
    assert "the first NaN is in MulBackward0, called in " in caplog.text
    assert f"{__file__}:{endless.__code__.co_firstlineno + 1}, endless; in epoch 1" in caplog.text
    assert not torch.is_anomaly_enabled()


def test_losses_of_a_task_are_named_too() -> None:
    class Own(Sums):
        def batch_loss(self, out: Any, batch: Any) -> dict[str, Any]:
            good, bad = out["sum"].mean(), broken(out)
            return {"loss": (good + bad, 4), "good": (good, 4), "bad": (bad, 4)}

    with pytest.raises(TaskError, match=r"^loss 'bad': its backward pass fails"):
        fit(make_run(Own(), setting=DEBUG))


def test_debugging_changes_no_bit_of_the_training() -> None:
    plain, debugged = adder(dropout=0.3), adder(dropout=0.3)
    for model, setting in ((plain, {}), (debugged, DEBUG)):
        loss = Loss(
            [LossTerm(nn.MSELoss(), name="mse"), LossTerm(nn.L1Loss(), name="l1", weight=0.1)]
        )
        fit(make_run(Bare(), model, parts={"loss": loss}, setting=setting))
    assert torch.equal(weights(plain), weights(debugged))


def test_while_debugging_steps_are_eager() -> None:
    run = make_run(setting=DEBUG, engine={"step": "compile"}, for_="1st")
    choices = run.choices
    fit(run)
    assert choices["step"] == "eager"
