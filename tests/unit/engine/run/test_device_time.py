"""Tests of timing steps on a device, with a fake device."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import torch

from engine.parts import make_run
from epochal.engine.run.device_time import DeviceTime, NoDeviceTime, choose_device_time

if TYPE_CHECKING:
    from epochal.engine import Run


class Device:
    """Comes to marks when time is put on; each is behind the work handed over before it."""

    def __init__(self) -> None:
        self.handed_over = 0.0
        self.done = 0.0

    def mark(self) -> Mark:
        return Mark(self)


class Mark:
    def __init__(self, device: Device) -> None:
        self.device = device
        self.at = -1.0

    def record(self) -> None:
        self.at = self.device.handed_over

    def query(self) -> bool:
        return self.device.done >= self.at

    def elapsed_time(self, end: Mark) -> float:
        assert self.query()
        assert end.query(), "this would wait for the device"
        return (end.at - self.at) * 1000


class Steps:
    """A run of which only the position moves."""

    def __init__(self, device: Device) -> None:
        self.device = device
        self.run: Run = make_run()
        self.times = DeviceTime(device.mark)
        self.times.add_to(self.run)
        self.run.plan.start(self.run)
        self.looks: list[int] = []

    def take(self, count: int, *, seconds: float, lag: float) -> None:
        """Take steps of so many seconds; afterwards the device lags by ``lag``."""
        for _ in range(count):
            self.device.handed_over += seconds
            self.device.done = max(self.device.done, self.device.handed_over - lag)
            self.run.step += 1
            if self.run.step >= self.run.plan.next_due:
                self.looks.append(self.run.step)
                self.run.plan.run_due(self.run)


@pytest.fixture
def steps() -> Steps:
    return Steps(Device())


def test_one_step_in_sixty_four_is_timed(steps: Steps) -> None:
    steps.take(200, seconds=1.0, lag=0.0)
    assert steps.looks == [64, 65, 128, 129, 192, 193]


def test_a_device_that_is_behind_shows_its_own_time(steps: Steps) -> None:
    steps.take(200, seconds=0.5, lag=5.0)
    assert steps.times.read() == {"samples": 2, "behind": 1.0, "step_seconds": 0.5}
    steps.device.done = steps.device.handed_over
    assert steps.times.read()["samples"] == 3


def test_a_device_that_waits_for_the_host_is_recognised(steps: Steps) -> None:
    steps.take(100, seconds=0.5, lag=0.0)
    assert steps.times.read() == {"samples": 1, "behind": 0.0, "step_seconds": 0.5}


def test_only_steps_with_the_device_behind_tell_its_time(steps: Steps) -> None:
    steps.take(100, seconds=3.0, lag=0.0)
    steps.take(100, seconds=1.0, lag=9.0)
    steps.take(60, seconds=1.0, lag=0.0)
    assert steps.times.read() == {"samples": 4, "behind": 0.5, "step_seconds": 1.0}


def test_marks_that_the_device_has_not_reached_are_not_reused(steps: Steps) -> None:
    steps.take(200, seconds=0.5, lag=1000.0)
    assert steps.looks == [64, 65, 128, 192]
    assert steps.times.read() == {}


def test_a_step_with_an_evaluation_or_a_new_epoch_beside_it_does_not_count(steps: Steps) -> None:
    steps.take(64, seconds=1.0, lag=0.0)
    steps.run.epoch += 1
    steps.take(64, seconds=1.0, lag=0.0)
    steps.run.evaluated_at["val"] = 128
    steps.take(60, seconds=1.0, lag=0.0)
    assert steps.times.read() == {}


def test_a_device_that_failed_says_nothing(steps: Steps, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(mark: Mark) -> bool:
        raise RuntimeError("an illegal memory access was encountered")

    steps.take(65, seconds=1.0, lag=0.0)
    monkeypatch.setattr(Mark, "query", fail)
    assert steps.times.read() == {}


def test_the_cpu_needs_no_marks() -> None:
    times = choose_device_time(torch.device("cpu"))
    run = make_run()
    times.add_to(run)
    assert isinstance(times, NoDeviceTime)
    assert times.read() == {}
    assert all(row.hook != "time the device" for row in run.plan.describe())
