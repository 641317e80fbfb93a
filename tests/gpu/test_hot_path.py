"""On a CUDA device an ordinary step never waits; torch raises an error where one would."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import torch

from epochal.engine.execute import execute
from epochal.engine.measure.meter import Meter
from epochal.engine.run.variables import request_variables
from epochal.engine.step.updater import Updater
from hot_path import Measured, Stepwise, full_run, is_ordinary

if TYPE_CHECKING:
    from collections.abc import Iterator

    from torch import Tensor

    from epochal.engine import Run

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]

SETTLED = 12
"""Steps after which captured ones have been tried."""


@pytest.fixture(autouse=True)
def sync_debug_mode_is_given_back() -> Iterator[None]:
    yield
    torch.cuda.set_sync_debug_mode("default")


def never_waiting(first: int) -> Stepwise:
    """Train, with an error if an ordinary step from the first one on waits."""

    def look(run: Run) -> None:
        is_inside = run.step >= first and not run.feed.is_complete
        is_watched = is_inside and is_ordinary(run.step + 1)
        torch.cuda.set_sync_debug_mode("error" if is_watched else "default")

    return Stepwise(look)


def run_of(task: Measured, step: str) -> Run:
    rate = torch.tensor(1e-3, device="cuda")
    return full_run(task, device="cuda", step=step, fused=True, capturable=True, lr=rate)


@pytest.mark.parametrize("step", ["eager", "graph"])
def test_ordinary_step_never_waits_for_the_device(step: str) -> None:
    run = run_of(Measured(), step)
    first = 1 if step == "eager" else SETTLED
    result = execute(run, never_waiting(first), raise_errors=True)
    assert result.steps == 48
    assert run.choices["step"] == step
    assert set(run.writer.series("train/loss")) == {8, 16, 24, 32, 40, 48}
    assert run.writer.series("lr")[48] == 1e-3


def test_task_that_waits_is_noticed() -> None:
    class Curious(Measured):
        def batch_loss(self, out: Tensor, batch: list[Tensor]) -> dict[str, Any]:
            losses = super().batch_loss(out, batch)
            losses["loss"][0].item()
            return losses

    with pytest.raises(RuntimeError, match="synchronizing"):
        execute(run_of(Curious(), "eager"), never_waiting(1), raise_errors=True)


def test_means_on_the_device_equal_those_on_the_host() -> None:
    host, device = Meter(), Meter("cuda")
    windows = host.window(), device.window()
    taken: list[dict[str, float]] = []
    for index in range(300):
        value, count = torch.tensor(index / 7), index % 5
        host.add({"loss": (value, count), "n": (value, torch.tensor(count)), "x": (1.5, 2)})
        value, count_there = value.cuda(), torch.tensor(count, device="cuda")
        device.add({"loss": (value, count), "n": (value, count_there), "x": (1.5, 2)})
        if index % 100 == 50:
            windows[1].read_later(taken.append)
            device.add({"loss": (torch.tensor(1e9, device="cuda"), 1)})
            device.deliver()
            assert windows[1].read() == {"loss": 1e9}
            assert taken.pop() == pytest.approx(windows[0].read(), rel=1e-12)
    assert windows[1].read() == pytest.approx(windows[0].read(), rel=1e-12)


def test_device_variables_are_recorded_without_waiting() -> None:
    run = run_of(Measured(), "eager")
    run.part(Updater).bind(run)  # the rates are known from here on
    number = torch.tensor(3.0, device="cuda", requires_grad=True)
    run.variables["own"] = lambda: number * 2
    torch.cuda.synchronize()
    torch.cuda.set_sync_debug_mode("error")
    read = request_variables(run)
    torch.cuda.set_sync_debug_mode("default")
    number.data.fill_(7.0)
    assert read() == {"lr": 1e-3, "own": 6.0}


@pytest.mark.parametrize("step", ["eager", "graph"])
def test_fp16_loss_scale_is_recorded_without_waiting(step: str) -> None:
    rate = torch.tensor(1e-3, device="cuda")
    run = full_run(
        Measured(),
        device="cuda",
        step=step,
        precision="fp16",
        **{"fused": True, "capturable": True, "lr": rate},
    )
    execute(run, never_waiting(1 if step == "eager" else SETTLED), raise_errors=True)
    scales = run.writer.series("loss_scale")
    assert set(scales) == {8, 16, 24, 32, 40, 48}
    assert all(scale > 0 and scale.is_integer() for scale in scales.values())
