"""Measures the time of each part of a run on the host; the parts sum to the total."""

from __future__ import annotations

import time
from collections import defaultdict
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, final

from epochal.records.metrics.time_spent import (
    DATA_WAIT,
    FIRST_BATCH,
    OTHER,
    STARTUP,
    STEPS,
    TimeSpent,
    add_times,
    is_startup_part,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


@final
class PhaseTimer:
    """Counts the time of a run into parts; exactly one part is open at a time.

    Opening a part inside another one interrupts it, so nothing is counted twice, and the parts
    always sum to the elapsed time.

    Args:
        now: Returns seconds of a monotonic clock.
        begun: Start of the first part on that clock; now by default.
        part: The first part.
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

        Args:
            waits: Seconds of the steps that were waits for data, and how many of them for the
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
