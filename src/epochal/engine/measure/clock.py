"""The clock of a run: speed, time left, peak memory; never a sync."""

from __future__ import annotations

import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, final

import torch

from epochal.engine.measure.phase_timer import PhaseTimer
from epochal.records.metrics.time_spent import EVALUATION, parse_time_spent

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping


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


def peak_memory_bytes(device: torch.device) -> int | None:
    """The peak memory of tensors on the device; None on the CPU."""
    return torch.cuda.max_memory_allocated(device) if device.type == "cuda" else None
