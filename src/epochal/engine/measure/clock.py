"""The clock of a run: speed, time left, peak memory; never a sync."""

from __future__ import annotations

import time
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, final

import torch

from epochal.engine.measure.phase_timer import PhaseTimer
from epochal.records.metrics.time_spent import EVALUATION, parse_time_spent

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from epochal.engine.run import Run


@final
@dataclass(frozen=True, slots=True)
class Speed:
    """The speed of steps; all zero if there were none."""

    steps: int
    step_seconds: float
    """Mean time of a step, with the wait for data but without evaluations."""

    data_seconds: float
    """Mean time a step waited for its data."""

    samples_per_second: float


@final
class Clock:
    """The time since the run started, and the training time in it.

    Args:
        now: Returns seconds of a monotonic clock.
        times: Times of each part so far; by default counted from the start.
    """

    def __init__(
        self, now: Callable[[], float] = time.perf_counter, times: PhaseTimer | None = None
    ) -> None:
        self.now = now
        self._is_begun = times is not None
        self.times = times or PhaseTimer(now)
        """The time of each part of the run."""

        self.first_seconds = 0.0
        """Its ``seconds`` when this process started."""

        self._started = now()
        self._paused_seconds = 0.0
        self._is_paused = False

    def start(self) -> None:
        """Start the clock; times that were counted before the run was built continue."""
        if not self._is_begun:
            self.times = PhaseTimer(self.now)
        self._started = self.now()
        self._paused_seconds = 0.0

    @property
    def seconds(self) -> float:
        """Seconds since the run started."""
        return self.now() - self._started

    @property
    def training_seconds(self) -> float:
        """Seconds since the run started that were not spent in pauses."""
        return self.seconds - self._paused_seconds

    def state_dict(self) -> dict[str, float]:
        """The state for a checkpoint."""
        return {"seconds": self.seconds, "paused_seconds": self._paused_seconds}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue from a checkpoint; the time since it was saved does not count."""
        if "spent" in state and not self.times.before.times:  # the record is more exact
            self.times.before = parse_time_spent(state["spent"])
        self.first_seconds = state["seconds"]
        self._started = self.now() - state["seconds"]
        self._paused_seconds = state["paused_seconds"]

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Count a block as evaluation, not as training."""
        with self.times.measuring(EVALUATION):
            if self._is_paused:
                yield
                return
            begun = self.now()
            self._is_paused = True
            try:
                yield
            finally:
                self._is_paused = False
                self._paused_seconds += self.now() - begun


@final
class SpeedMeter:
    """The speed between one read and the next; each reader needs its own.

    Args:
        run: The run to measure, from now on.
    """

    def __init__(self, run: Run) -> None:
        self._run = run
        self._mark = self._position()

    def read(self) -> Speed:
        """The speed since the last read."""
        before, self._mark = self._mark, self._position()
        steps, seconds, waited, samples = (
            now - then for now, then in zip(self._mark, before, strict=True)
        )
        if not steps or seconds <= 0:
            return Speed(0, 0.0, 0.0, 0.0)
        return Speed(int(steps), seconds / steps, waited / steps, samples / seconds)

    def _position(self) -> tuple[float, float, float, float]:
        run = self._run
        return run.step, run.clock.training_seconds, run.feed.wait_seconds, run.samples


def seconds_left(run: Run) -> float | None:
    """The remaining seconds of the run at its speed so far, or None if unknown."""
    guesses = []
    if run.limits.steps is not None and run.step > run.first_step:
        seconds = run.clock.seconds - run.clock.first_seconds
        pace = seconds / (run.step - run.first_step)
        guesses.append((run.limits.steps - run.step) * pace)
    if run.limits.seconds is not None:
        guesses.append(run.limits.seconds - run.clock.seconds)
    return max(0.0, min(guesses)) if guesses else None


def peak_memory_bytes(device: torch.device) -> int | None:
    """The peak memory of tensors on the device; None on the CPU."""
    return torch.cuda.max_memory_allocated(device) if device.type == "cuda" else None
