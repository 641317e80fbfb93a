"""Where the time goes: parts of the host's time line that sum to the whole, without a sync."""

from __future__ import annotations

import time
from collections import defaultdict
from contextlib import contextmanager
from typing import TYPE_CHECKING, final

from epochal.records.times import OTHER, START, STEPS, WAIT

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from epochal.engine.run import Run


@final
class Times:
    """Counts each moment of a run into exactly one part: the one that is open just then.

    A part that is opened within another one interrupts it, so nothing is counted twice, and
    the parts always sum to the time that has passed.

    Args:
        now: Seconds on a clock that never goes back.
    """

    def __init__(self, now: Callable[[], float] = time.perf_counter) -> None:
        self._now = now
        self.reset()

    def reset(self) -> None:
        """Forget what was counted, and begin with the start of a run."""
        self._seconds: defaultdict[str, float] = defaultdict(float)
        self._open = START
        self._since = self._now()
        self._waited = 0.0

    def switch(self, part: str) -> str:
        """Count into ``part`` from now on; gives the part that was open before."""
        now, before = self._now(), self._open
        self._seconds[before] += now - self._since
        self._since, self._open = now, part
        return before

    @contextmanager
    def measuring(self, part: str) -> Iterator[None]:
        """Count a block into ``part``, but for the parts within it that count for themselves."""
        before = self.switch(part)
        try:
            yield
        finally:
            self.switch(before)

    @contextmanager
    def training(self) -> Iterator[None]:
        """Count a block as steps; the first one ends the start-up."""
        before = self.switch(STEPS)
        try:
            yield
        finally:
            self.switch(OTHER if before == START else before)

    def add(self, part: str, seconds: float) -> None:
        """Count seconds that passed just now into ``part``, and not into the open one."""
        self._seconds[part] += seconds
        self._seconds[self._open] -= seconds

    def read(self, waited: float | None = None) -> dict[str, float]:
        """Seconds of each part so far, the largest first.

        Args:
            waited: How much of the steps was waiting for data; as in the last call by default.
        """
        self.switch(self._open)
        self._waited = self._waited if waited is None else waited
        parts = dict(self._seconds)
        parts[WAIT] = min(self._waited, parts.get(STEPS, 0.0))
        parts[STEPS] = parts.get(STEPS, 0.0) - parts[WAIT]
        kept = {part: max(0.0, seconds) for part, seconds in parts.items() if seconds}
        return dict(sorted(kept.items(), key=lambda item: -item[1]))


def read_times(run: Run) -> dict[str, float]:
    """Seconds of each part of a run so far, the largest first; also of one that is released."""
    feed = getattr(run, "feed", None)
    return run.clock.times.read(None if feed is None else feed.wait_seconds)


def read_device_time(run: Run) -> dict[str, float]:
    """What was seen of the device, and whether it got whole steps; empty if nothing was seen."""
    seen = dict(run.device_time.read())
    if seen and run.choices.get("step", "eager") != "eager":
        seen["captured"] = 1.0
    return seen
