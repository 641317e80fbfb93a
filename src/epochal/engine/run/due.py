"""Periodic calls between steps, and the time at which each is due next."""

from __future__ import annotations

import math
import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, final

from epochal.engine.process.signals import EvaluationInterrupted

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from epochal.engine.interfaces.every import Every
    from epochal.engine.interfaces.run import Run
    from epochal.engine.run.engine_run import EngineRun

END_PRIORITY = 20_000
"""Priority of calls that end the run: after everything else at a position."""


@final
@dataclass(slots=True)
class Due:
    """A call that is due periodically, or once at a position."""

    name: str
    priority: int
    every: Every
    call: Callable[[EngineRun], object]
    at: float = math.inf
    """The next position at which it is due, in units of ``every``."""

    is_once: bool = False

    def set_next_time(self, run: EngineRun) -> None:
        """Set the first time after the position of the run."""
        if self.is_once:
            self.at = self.every.amount
        else:
            self.at = self.every.after(run_position(run, self.every.unit))

    def is_due(self, run: EngineRun) -> bool:
        """Whether the run has reached its next time."""
        return run_position(run, self.every.unit) >= self.at

    def run_and_reschedule(self, run: EngineRun) -> None:
        """Call it and set the next time; it stays due if it is interrupted or fails."""
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

    def earliest_step(self, run: EngineRun) -> float:
        """A lower bound of the step at which it is due."""
        if self.every.unit == "st" or self.at == math.inf:
            return self.at
        if self.every.unit == "sa":
            per_step = run.feed.samples_per_step
            if per_step is None:
                return run.step + 1
            return run.step + max(1, math.ceil((self.at - run.samples) / per_step))
        return math.inf


def run_position(run: Run, unit: str) -> float:
    """The position of a run in epochs, steps, samples or seconds."""
    if unit == "st":
        return run.step
    if unit == "ep":
        return run.epoch
    return run.samples if unit == "sa" else run.clock.seconds


def list_due_times(dues: Iterable[Due]) -> list[tuple[Any, ...]]:
    """The next time of each call, for a checkpoint."""
    return [(*_key(due), due.at) for due in dues]


def restore_due_times(
    dues: Iterable[Due], times: Iterable[tuple[Any, ...]], run: EngineRun
) -> None:
    """Restore the next times from a checkpoint.

    Calls that it does not have count from the position of the run, and so do the limits of the
    run: a limit that was reached is reached again.
    """
    known: dict[tuple[Any, ...], list[float]] = {}
    for *key, at in times:
        known.setdefault(tuple(key), []).append(at)
    for due in dues:
        saved = known.get(_key(due))
        if saved and not (due.is_once and due.priority == END_PRIORITY):
            due.at = saved.pop(0)
        else:
            due.set_next_time(run)


def _key(due: Due) -> tuple[Any, ...]:
    return due.name, due.priority, due.every.amount, due.every.unit, due.is_once


@final
class Alarm:
    """Calls a function once after some seconds, from a daemon thread."""

    def __init__(self) -> None:
        self._timer: threading.Timer | None = None

    def set(self, seconds: float, function: Callable[[], None]) -> None:
        """Call a function later, instead of the one set before."""
        self.cancel()
        # Limited because threads refuse longer waits; an early call is harmless.
        self._timer = threading.Timer(min(max(seconds, 0.0), 1e6), function)
        self._timer.daemon = True
        self._timer.start()

    def cancel(self) -> None:
        """Cancel the call."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
