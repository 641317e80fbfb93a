"""The clock of a run, the time of each of its parts, and peak memory; never a sync."""

from __future__ import annotations

import time
from collections import defaultdict
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any, final

import torch

from epochal.records.metrics.time_spent import (
    DATA_WAIT,
    EVALUATION,
    FIRST_BATCH,
    OTHER,
    STARTUP,
    STEPS,
    TimeSpent,
    add_times,
    is_startup_part,
    parse_time_spent,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping


@final
class PhaseTimer:
    """Counts the time of a run into parts, from ``begun`` on; exactly one part is open at a time.

    Opening a part inside another one interrupts it, so nothing is counted twice, and the parts
    always sum to the elapsed time.
    """

    def __init__(
        self,
        now: Callable[[], float] = time.perf_counter,
        *,
        begun: float | None = None,
        part: str = STARTUP,
    ) -> None:
        self._now = now
        self._seconds: defaultdict[str, float] = defaultdict(float)
        self._open = part
        self._since = now() if begun is None else begun
        self._waits = (0.0, 0.0)
        self.before = TimeSpent()
        """The time of earlier processes of the run; ``count_redone`` adds to it."""

    def switch(self, part: str) -> str:
        """Count into ``part`` from now on; returns the part that was open before."""
        now, before = self._now(), self._open
        self._seconds[before] += now - self._since
        self._since, self._open = now, part
        return before

    @contextmanager
    def measuring(self, part: str) -> Iterator[None]:
        """Count a block into ``part``, except the parts that are opened inside it."""
        before = self.switch(part)
        try:
            yield
        finally:
            self.switch(before)

    @contextmanager
    def training(self) -> Iterator[None]:
        """Count a block as steps; the first such block ends the start-up."""
        before = self.switch(STEPS)
        try:
            yield
        finally:
            self.switch(OTHER if is_startup_part(before) else before)

    def add(self, part: str, seconds: float) -> None:
        """Move seconds of the open part that just passed to ``part``."""
        self._seconds[part] += seconds
        self._seconds[self._open] -= seconds

    def read(self, waits: tuple[float, float] | None = None) -> dict[str, float]:
        """Seconds of each part so far in this process, the largest first.

        ``waits`` are seconds of the steps that were waits for data, and how many of them for the
        first batch; as in the last call by default.
        """
        self.switch(self._open)
        self._waits = waits or self._waits
        parts = dict(self._seconds)
        waited = min(self._waits[0], parts.get(STEPS, 0.0))
        first = min(self._waits[1], waited)
        parts |= {DATA_WAIT: waited - first, STEPS: parts.get(STEPS, 0.0) - waited}
        parts[FIRST_BATCH] = parts.get(FIRST_BATCH, 0.0) + first
        return add_times({part: max(0.0, seconds) for part, seconds in parts.items() if seconds})

    def read_spent(self, waits: tuple[float, float] | None = None) -> TimeSpent:
        """The time of the run so far, in all its processes."""
        return replace(self.before, times=add_times(self.before.times, self.read(waits)))

    def count_redone(self, at: TimeSpent) -> None:
        """Count the time since the run had spent ``at`` as redone, after a rollback to there."""
        redone = self.read_spent().go_back(at).redone_seconds
        self.before = replace(self.before, redone_seconds=redone)


@final
class Clock:
    """The time since the run started, and the training time in it; ``times`` so far continue."""

    def __init__(
        self, now: Callable[[], float] = time.perf_counter, times: PhaseTimer | None = None
    ) -> None:
        self.now = now
        self._is_begun = times is not None
        self.times = times or PhaseTimer(now)
        """The time of each part of the run."""

        self.agreed_seconds: float | None = None
        """The last time on which all processes of the run agreed; None in a single process."""

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
    def due_seconds(self) -> float:
        """The time that decides what is due: the same in every process of the run."""
        return self.seconds if self.agreed_seconds is None else self.agreed_seconds

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
        if self.agreed_seconds is not None:
            self.agreed_seconds = state["seconds"]
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
