"""What time it is for the run: speed, waiting for data, time left, memory; never a sync."""

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
    """How fast steps went; all zero if there were none."""

    steps: int
    step_seconds: float
    """Mean time of a step, its waiting for data included, evaluations not."""

    data_seconds: float
    """Mean time a step waited for its data."""

    samples_per_second: float


@final
class Clock:
    """The time since the run started, and how much of it was training.

    Args:
        now: Seconds on a clock that never goes back.
        times: Where the time went so far; by default it counts from the start.
    """

    def __init__(
        self, now: Callable[[], float] = time.perf_counter, times: PhaseTimer | None = None
    ) -> None:
        self.now = now
        self._is_begun = times is not None
        self.times = times or PhaseTimer(now)
        """Where the time went."""

        self.first_seconds = 0.0
        """What it showed when this process began."""

        self._started = now()
        self._paused_seconds = 0.0
        self._is_paused = False

    def start(self) -> None:
        """Count from here; what had begun before the run was built goes on."""
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
        """What a checkpoint keeps."""
        return {"seconds": self.seconds, "paused_seconds": self._paused_seconds}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from a checkpoint; the time between is nobody's."""
        if "spent" in state and not self.times.before.times:  # else the record knew, and better
            self.times.before = parse_time_spent(state["spent"])
        self.first_seconds = state["seconds"]
        self._started = self.now() - state["seconds"]
        self._paused_seconds = state["paused_seconds"]

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Do not count a block as training; used for evaluations."""
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
    """Speeds between one read and the next; each reader makes its own.

    Args:
        run: The run to watch, from now on.
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
    """How long the run will still take at its pace so far, or None if nobody can say."""
    guesses = []
    if run.limits.steps is not None and run.step > run.first_step:
        seconds = run.clock.seconds - run.clock.first_seconds
        pace = seconds / (run.step - run.first_step)
        guesses.append((run.limits.steps - run.step) * pace)
    if run.limits.seconds is not None:
        guesses.append(run.limits.seconds - run.clock.seconds)
    return max(0.0, min(guesses)) if guesses else None


def peak_memory_bytes(device: torch.device) -> int | None:
    """The most memory that tensors took on the device so far; None on the CPU."""
    return torch.cuda.max_memory_allocated(device) if device.type == "cuda" else None
