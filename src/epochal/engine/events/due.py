"""Things to do between two steps, and when each comes next."""

from __future__ import annotations

import math
import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, final

from epochal.engine.process.signals import EvaluationInterrupted

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from epochal.engine.interfaces.every import Every
    from epochal.engine.run import Run

END_PRIORITY = 20_000
"""Of what ends a run: the very last thing at a position."""


@final
@dataclass(slots=True)
class Due:
    """Something that is to happen each time a position of the run is passed."""

    name: str
    priority: int
    every: Every
    call: Callable[[Run], object]
    at: float = math.inf
    """The position, in units of ``every``, at which it happens next."""

    is_once: bool = False

    def aim(self, run: Run) -> None:
        """Look for the next time after the run's position."""
        if self.is_once:
            self.at = self.every.amount
        else:
            self.at = self.every.after(run_position(run, self.every.unit))

    def is_due(self, run: Run) -> bool:
        """Whether its time has come."""
        return run_position(run, self.every.unit) >= self.at

    def run_and_reschedule(self, run: Run) -> None:
        """Do it, and look for the next time; what is abandoned or fails stays due."""
        before = self.at
        if self.is_once:
            self.at = math.inf
        else:
            self.at = self.every.after(run_position(run, self.every.unit))
        try:
            self.call(run)
        except EvaluationInterrupted:
            self.at = before
        except BaseException:
            self.at = before
            raise

    def earliest_step(self, run: Run) -> float:
        """A step that is not later than the one at which it is due."""
        if self.every.unit == "st" or self.at == math.inf:
            return self.at
        if self.every.unit == "sa":
            per_step = run.feed.samples_per_step
            if per_step is None:
                return run.step + 1
            return run.step + max(1, math.ceil((self.at - run.samples) / per_step))
        return math.inf


def run_position(run: Run, unit: str) -> float:
    """How far the run is, in epochs, steps, samples or seconds."""
    if unit == "st":
        return run.step
    if unit == "ep":
        return run.epoch
    return run.samples if unit == "sa" else run.clock.seconds


def list_due_times(dues: Iterable[Due]) -> list[tuple[Any, ...]]:
    """What a checkpoint keeps of dues: when each comes next."""
    return [(*_key(due), due.at) for due in dues]


def restore_due_times(dues: Iterable[Due], times: Iterable[tuple[Any, ...]], run: Run) -> None:
    """Let dues go on from a checkpoint, at the run's position.

    What it does not know is counted from here, and so is each end of the run: one that was
    reached is reached still.
    """
    known: dict[tuple[Any, ...], list[float]] = {}
    for *key, at in times:
        known.setdefault(tuple(key), []).append(at)
    for due in dues:
        left = known.get(_key(due))
        if left and not (due.is_once and due.priority == END_PRIORITY):
            due.at = left.pop(0)
        else:
            due.aim(run)


def _key(due: Due) -> tuple[Any, ...]:
    return due.name, due.priority, due.every.amount, due.every.unit, due.is_once


@final
class Alarm:
    """Calls a function once after some seconds, from a thread that never keeps Python alive."""

    def __init__(self) -> None:
        self._timer: threading.Timer | None = None

    def set(self, seconds: float, function: Callable[[], None]) -> None:
        """Call later, instead of what was set before."""
        self.cancel()
        # The longest wait that threads accept; waking early only costs one look at the clock.
        self._timer = threading.Timer(min(max(seconds, 0.0), 1e6), function)
        self._timer.daemon = True
        self._timer.start()

    def cancel(self) -> None:
        """Do not call."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
