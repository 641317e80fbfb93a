"""Tests of comparing steps with eager ones, and undoing them."""

from __future__ import annotations

import random
from contextlib import nullcontext
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from engine.parts import Sums, adder, make_run, weights
from epochal.engine import Run, current_run
from epochal.engine.capture import capture_trial
from epochal.engine.capture.capture_trial import (
    CaptureRefusedError,
    CaptureTrial,
    describe_user_line,
)
from epochal.engine.measure.meter import Meter
from epochal.engine.run_context import making_current
from epochal.engine.step.updater import Updater


def prepared(task: Sums | None = None, model: nn.Module | None = None, **options: Any) -> Run:
    """A run after its first step, whose sums lie in tensors as on a device."""
    run = make_run(task or Sums(), model or adder(dropout=0.3), **options)
    run.meter = Meter("cpu", is_async=True)
    run.bind()
    run.part(Updater).bind(run)
    with making_current(run):
        run.part(Updater).update(run, (batches(run)[0][0],))
    return run


def batches(run: Run) -> list[tuple[Any]]:
    return [(batch,) for batch in list(run.task.train_loader)[:3]]


def trial_of(run: Run) -> CaptureTrial:
    update = run.part(Updater).update
    return CaptureTrial(run, lambda microbatches: update(run, microbatches), batches(run))


def watched(run: Run) -> CaptureTrial:
    trial = trial_of(run)
    with making_current(run):
        trial.watch_eager()
    return trial


def test_a_trial_leaves_no_trace() -> None:
    run = prepared(model=adder())
    run.meter.flush()
    before = weights(run.model).clone()
    trial = watched(run)
    assert not torch.equal(weights(run.model), before)
    trial.restore()
    assert torch.equal(weights(run.model), before)
    window = run.meter.window()
    assert window.read() == {}


def test_a_refused_trial_gives_back_random_numbers_and_attributes() -> None:
    for task in (Counter(), Dice()):
        run = prepared(task, adder(dropout=0.5))
        trial = trial_of(run)
        states = random.getstate(), torch.get_rng_state()
        before = dict(vars(task))
        with making_current(run), pytest.raises(CaptureRefusedError):
            trial.watch_eager()
        trial.restore()
        assert random.getstate() == states[0]
        assert torch.equal(torch.get_rng_state(), states[1])
        assert vars(task) == before


def test_steps_that_are_the_same_are_equal_bit_for_bit() -> None:
    run = prepared(model=adder())
    trial = watched(run)
    verdict = trial.compare(lambda batch: run.part(Updater).update(run, batch), is_exact=True)
    assert verdict == "equal to eager steps bit for bit"


def scaled(run: Run, factor: float) -> Any:
    """Takes steps, each of them a little off."""

    def take_step(batch: Any) -> None:
        run.part(Updater).update(run, batch)
        with torch.no_grad():
            for parameter in run.model.parameters():
                parameter.mul_(factor)

    return take_step


def test_other_numbers_are_refused_where_eager_steps_repeat() -> None:
    run = prepared(model=adder())
    trial = watched(run)
    with pytest.raises(
        CaptureRefusedError, match=r"differ from those of eager steps, first in model\.0"
    ):
        trial.compare(scaled(run, 1.0000002), is_exact=True)


def test_compiled_steps_may_differ_by_rounding_and_no_more() -> None:
    run = prepared(model=adder())
    trial = watched(run)
    assert trial.compare(scaled(run, 1.0000002), is_exact=False).startswith("within ")
    with pytest.raises(CaptureRefusedError, match="it differs from eager steps"):
        trial.compare(scaled(run, 1.5), is_exact=False)


def test_weights_and_losses_each_have_a_limit() -> None:
    run = prepared(model=adder())
    trial = watched(run)
    with pytest.raises(
        CaptureRefusedError, match=r"of the change of the weights \(5.0e-02 allowed\)"
    ):
        trial.compare(scaled(run, 1.05), is_exact=False)

    def with_another_loss(batch: Any) -> None:
        run.part(Updater).update(run, batch)
        for total in run.meter.state_tensors().values():
            total.mul_(1.01)

    with pytest.raises(CaptureRefusedError, match=r"of the loss \(1.0e-03\)"):
        trial.compare(with_another_loss, is_exact=False)


def test_shorter_formats_may_part_further() -> None:
    run = prepared(model=adder(), engine={"precision": "bf16"})
    trial = watched(run)
    with pytest.raises(
        CaptureRefusedError, match=r"\(5.0e-01 allowed\) .* of the loss \(2.0e-02\)"
    ):
        trial.compare(scaled(run, 3.0), is_exact=False)


NOISE = iter(range(100_000))


class Wavering(Sums):
    """Never gives the same bits twice, like kernels that are not deterministic."""

    def batch_loss(self, out: dict[str, Tensor], batch: list[Tensor]) -> dict[str, Any]:
        (loss, count) = super().batch_loss(out, batch)["loss"]
        return {"loss": (loss * (1 + 1e-4 * next(NOISE)), count)}


def test_steps_that_do_not_repeat_are_compared_by_their_own_spread() -> None:
    run = prepared(Wavering(), adder())
    trial = watched(run)
    assert "within" in trial.compare(lambda b: run.part(Updater).update(run, b), is_exact=True)
    with pytest.raises(CaptureRefusedError, match="differs from"):
        trial.compare(scaled(run, 1.5), is_exact=True)


class Jumping(Sums):
    """Gives the same bits most of the time, like a sum whose order seldom matters."""

    def batch_loss(self, out: dict[str, Tensor], batch: list[Tensor]) -> dict[str, Any]:
        (loss, count) = super().batch_loss(out, batch)["loss"]
        return {"loss": (loss * (1 + 1e-6 * (next(NOISE) % 4 == 0)), count)}


def test_steps_that_seldom_differ_are_seen_to_do_so_and_may_jump() -> None:
    run = prepared(Jumping(), adder())
    trial = watched(run)
    assert "within" in trial.compare(lambda b: run.part(Updater).update(run, b), is_exact=True)
    with pytest.raises(
        CaptureRefusedError, match=r"\(1.0e-03 allowed\) .* of the loss \(1.0e-05\)"
    ):
        trial.compare(scaled(run, 1.01), is_exact=True)


class Wild(Sums):
    """Gives other bits each time, and far more than rounding explains."""

    def batch_loss(self, out: dict[str, Tensor], batch: list[Tensor]) -> dict[str, Any]:
        (loss, count) = super().batch_loss(out, batch)["loss"]
        return {"loss": (loss * (1 + next(NOISE) ** 2 % 997), count)}


def test_a_large_spread_of_eager_steps_allows_no_more_than_compiled_code_has() -> None:
    run = prepared(Wild(), adder())
    trial = watched(run)
    with pytest.raises(
        CaptureRefusedError, match=r"\(5.0e-02 allowed\) .* of the loss \(1.0e-03\)"
    ):
        trial.compare(lambda batch: run.part(Updater).update(run, batch), is_exact=True)


@pytest.mark.parametrize("is_exact", [True, False])
def test_replays_that_repeat_where_eager_steps_do_not_are_refused(is_exact: bool) -> None:
    run = prepared(Wavering(), adder())
    trial = watched(run)
    steady = run.part(Updater).update
    task = run.task

    def replay(batch: Any) -> None:
        task.batch_loss = super(Wavering, task).batch_loss
        run.bind()
        steady(run, batch)
        del task.batch_loss
        run.bind()

    with pytest.raises(
        CaptureRefusedError, match="something on the host changes from step to step"
    ):
        trial.compare(replay, is_exact=is_exact)


def test_steps_that_read_the_host_only_outside_of_the_capture_may_differ_by_rounding(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(capture_trial, "noting_host_reads", lambda device: nullcontext(["a read"]))
    for task in (Sums, Wavering):
        run = prepared(task(), adder())
        trial = watched(run)
        assert trial.compare(scaled(run, 1.0000002), is_exact=True).startswith("within ")
        with pytest.raises(CaptureRefusedError, match="it differs from eager steps"):
            trial.compare(scaled(run, 1.5), is_exact=True)


class Counter(Sums):
    calls = 0

    def batch_forward(self, model: nn.Module, batch: list[Tensor]) -> dict[str, Tensor]:
        self.calls += 1
        return super().batch_forward(model, batch)


class Dice(Sums):
    def batch_forward(self, model: nn.Module, batch: list[Tensor]) -> dict[str, Tensor]:
        return {"sum": model(batch[0] * random.random())}


class Timed(Sums):
    def batch_forward(self, model: nn.Module, batch: list[Tensor]) -> dict[str, Tensor]:
        return {"sum": model(batch[0]) * (1 + current_run().step)}


class Rebinding(nn.Module):
    """Replaces a buffer in each pass."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(3, 1)
        self.register_buffer("seen", torch.zeros(()))

    def forward(self, x: Tensor) -> Tensor:
        self.seen = self.seen + 1
        return self.linear(x)


@pytest.mark.parametrize(
    ("task", "model", "reason"),
    [
        (Counter, adder, "Counter.calls changes in the step"),
        (Dice, adder, "random numbers on the host, from Python's random"),
        (Timed, adder, r"run.step is read in .*test_capture_trial.py:\d+"),
        (Sums, Rebinding, "model.seen is replaced in the step"),
        (Sums, lambda: adder(dropout=0.5), "from torch on the CPU"),
    ],
)
def test_what_a_graph_would_freeze_is_refused(task: Any, model: Any, reason: str) -> None:
    run = prepared(task(), model())
    with pytest.raises(CaptureRefusedError, match=reason):
        watched(run)


def test_stop_requests_of_a_trial_are_forgotten() -> None:
    class Stopping(Sums):
        def batch_loss(self, out: dict[str, Tensor], batch: list[Tensor]) -> dict[str, Any]:
            current_run().stop("enough")
            return super().batch_loss(out, batch)

    run = prepared(Stopping(), adder())
    run.stop_reason = run.stop_status = ""
    watched(run)
    assert run.stop_reason == ""


def test_the_line_of_an_error_is_the_users() -> None:
    def mine() -> None:
        torch.ones(2) @ torch.ones(3)

    with pytest.raises(RuntimeError) as caught:
        mine()
    assert "test_capture_trial.py:" in describe_user_line(caught.value)
    assert "`torch.ones(2) @ torch.ones(3)`" in describe_user_line(caught.value)
    assert (
        describe_user_line(ValueError("no traceback")) == "a part of the model or of torch itself"
    )
