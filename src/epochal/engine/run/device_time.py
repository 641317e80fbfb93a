"""Measures the time of steps on the device, and whether it waits for the host, without a sync."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Protocol, cast, final

import torch

from epochal.engine.interfaces.every import Every

if TYPE_CHECKING:
    from collections.abc import Callable

    from epochal.engine.run.engine_run import EngineRun

PERIOD = Every(64, "st")
PLAN_NAME = "time the device"


class TimingEvent(Protocol):
    """A mark in the queue of a device, such as ``torch.cuda.Event``."""

    def record(self) -> None:
        """Put the mark after all work queued so far."""

    def query(self) -> bool:
        """Whether the device has reached the mark."""

    def elapsed_time(self, end_event: TimingEvent) -> float:
        """Milliseconds between two marks that the device has reached."""


@final
class DeviceTime:
    """Times one step in 64 with a mark before and a mark after it, read later.

    If the device has not reached the first mark when the host sets the second, it is behind, and
    the time between them is the device's. Otherwise the device waited for the host.
    """

    def __init__(self, make_event: Callable[[], TimingEvent]) -> None:
        self._before, self._after = make_event(), make_event()
        self._is_pending = False
        self._begun: tuple[int, ...] = ()
        self._was_behind = False
        self._behind: list[float] = [0, 0.0]  # steps, seconds
        self._waiting: list[float] = [0, 0.0]

    def add_to(self, run: EngineRun) -> None:
        """Time a step every ``PERIOD``."""
        self._due = run.plan.add_period(PLAN_NAME, PERIOD, self.mark_step)

    def mark_step(self, run: EngineRun) -> None:
        """Set the mark before the next step, or after the step just taken."""
        if self._begun:
            self._end(run)
        elif self._collect():
            self._before.record()
            self._begun = read_timing_position(run)
            self._due.at = run.step + 1

    def read(self) -> dict[str, float]:
        """Steps timed so far, share with the device behind, mean seconds per step.

        The seconds are the device's; if it was never behind, those of the host.
        """
        with suppress(RuntimeError):  # a failed device does not answer
            self._collect()
        count = self._behind[0] + self._waiting[0]
        if not count:
            return {}
        steps, seconds = self._behind if self._behind[0] else self._waiting
        return {
            "samples": count,
            "behind": self._behind[0] / count,
            "step_seconds": seconds / steps,
        }

    def _end(self, run: EngineRun) -> None:
        begun, self._begun = self._begun, ()
        # At epoch ends and evaluations there is other work between the marks.
        if read_timing_position(run) == (begun[0] + 1, *begun[1:]):
            self._was_behind = not self._before.query()
            self._after.record()
            self._is_pending = True

    def _collect(self) -> bool:
        """Count the step that was timed last; whether the marks are free again."""
        if self._is_pending:
            if not self._after.query():
                return False
            counts = self._behind if self._was_behind else self._waiting
            counts[0] += 1
            counts[1] += self._before.elapsed_time(self._after) / 1000
            self._is_pending = False
        return True


@final
class NoDeviceTime:
    """For devices without a queue, such as the CPU."""

    def add_to(self, run: EngineRun) -> None:
        """Do nothing."""

    def read(self) -> dict[str, float]:
        """An empty result."""
        return {}


def choose_device_time(device: torch.device) -> DeviceTime | NoDeviceTime:
    """The timer for a device."""
    if device.type != "cuda":
        return NoDeviceTime()
    return DeviceTime(_cuda_event)


def _cuda_event() -> TimingEvent:
    event = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]  # torch's own
    return cast("TimingEvent", event)  # it measures its own kind only


def read_timing_position(run: EngineRun) -> tuple[int, ...]:
    """The step, and numbers that an epoch end or an evaluation changes."""
    return run.step, run.epoch, *run.evaluated_at.values()
