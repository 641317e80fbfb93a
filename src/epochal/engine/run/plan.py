"""The plan: periodic calls between steps, and the next step at which anything is due."""

from __future__ import annotations

import math
import sys
import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, final

from epochal.engine.events.events import SPLIT_EVENTS, Events
from epochal.engine.interfaces.every import Every
from epochal.engine.interfaces.hook import EVENTS
from epochal.engine.interfaces.splits import SPLITS
from epochal.engine.process.signals import EvaluationInterrupted, is_interrupted_or_preempted

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from epochal.engine.events.events import Listener
    from epochal.engine.interfaces.run import Run
    from epochal.engine.run.engine_run import EngineRun

END_PRIORITY = 20_000
"""Priority of calls that end the run: after everything else at a position."""

EVAL_PRIORITY = 10_000
"""Priority of evaluations and saves: after hooks."""

_EACH_STEP = Every(1, "st")
_WITHIN_EPOCHS = frozenset({"st", "sa", "s"})
_BETWEEN_EPOCHS = frozenset({"ep"})
Key = tuple[str, int, Every, bool]


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

    def restart(self, run: EngineRun) -> None:
        """Begin a whole period at the position of the run."""
        self.at = run_position(run, self.every.unit) + self.every.amount

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
    return run.samples if unit == "sa" else run.clock.due_seconds


def list_due_times(dues: Iterable[Due]) -> list[tuple[Any, ...]]:
    """The next time of each call, for a checkpoint."""
    return [(*_saved_key(due), due.at) for due in dues]


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
        saved = known.get(_saved_key(due))
        if saved and not (due.is_once and due.priority == END_PRIORITY):
            due.at = saved.pop(0)
        else:
            due.set_next_time(run)


def _saved_key(due: Due) -> tuple[Any, ...]:
    return due.name, due.priority, due.every.amount, due.every.unit, due.is_once


@final
class Alarm:
    """Calls a function once after some seconds, from a daemon thread.

    ``ring`` is called instead, if it is given.
    """

    def __init__(self, *, ring: Callable[[], None] | None = None) -> None:
        self._timer: threading.Timer | None = None
        self._ring_instead = ring

    def set(self, seconds: float, function: Callable[[], None]) -> None:
        """Call a function later, instead of the one set before."""
        self.cancel()
        function = self._ring_instead or function
        # Limited because threads refuse longer waits; an early call is harmless.
        self._timer = threading.Timer(min(max(seconds, 0.0), 1e6), function)
        self._timer.daemon = True
        self._timer.start()

    def cancel(self) -> None:
        """Cancel the call."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


@final
@dataclass(frozen=True, slots=True)
class PlanRow:
    """One line of the printed plan."""

    event: str
    priority: int
    hook: str
    cadence: str
    """``each``, a period such as ``50st``, or ``once at 500st``; with its splits, if limited."""


@final
class Plan:
    """Knows the next step at which anything is due, so that other steps cost one comparison.

    Listeners of ``step_end`` are due by their periods. ``at_boundary``, which saves the run, is
    called after everything due at a position.
    """

    def __init__(
        self,
        events: Events,
        *,
        at_boundary: Callable[[EngineRun], object] = lambda run: None,
        alarm: Alarm | None = None,
    ) -> None:
        self.next_due = 0
        """The step after which ``run_due`` must be called; 0 means after the current step."""

        self.is_started = False
        self._events = events
        self._at_boundary = at_boundary
        self._alarm = alarm or Alarm()
        self._own_dues: list[Due] = []
        self.dues: list[Due] = []
        """All periodic and single calls, with their next times."""

        self.is_running_due = False
        """Whether a due call is running; it stays due if it is interrupted."""

        self._is_woken = False
        self._has_new = False
        self._rings_at = math.inf

    def add_period(
        self,
        name: str,
        every: Every,
        call: Callable[[EngineRun], object],
        *,
        priority: int = EVAL_PRIORITY,
    ) -> Due:
        """Add a periodic call of the engine, by default after the hooks of the same step."""
        due = Due(name, priority, every, call)
        if not every.is_never:
            self._add(due)
        return due

    def add_soonest(
        self, name: str, periods: Sequence[Every], call: Callable[[EngineRun], object]
    ) -> None:
        """Add a call that has several periods; each call restarts all of them."""
        if len(periods) == 1:
            self.add_period(name, periods[0], call)
            return

        def call_and_restart(run: EngineRun) -> None:
            call(run)
            for due in dues:
                due.restart(run)

        dues = [self.add_period(name, every, call_and_restart) for every in periods]

    def add_once(
        self,
        name: str,
        at: Every,
        call: Callable[[EngineRun], object],
        *,
        priority: int = END_PRIORITY,
    ) -> None:
        """Add a single call at a position, by default after everything else there."""
        self._add(Due(name, priority, at, call, is_once=True))

    def start(self, run: EngineRun) -> None:
        """Count all periods from the position of the run; call again when something was added.

        Known calls keep their next times, also inside ``run_due``: no due call is lost, and no
        single call runs again.
        """
        self.is_started = True
        self._has_new = False
        self.dues = _keep_known(self.dues, self._all_dues(), run)
        self.find_next_due(run)

    def run_due(self, run: EngineRun) -> None:
        """Run everything that is due after this step, low priorities first.

        Means that were requested after an earlier step are delivered before.
        """
        self._is_woken = False
        run.settle()
        if run.meter.deliver():
            run.events.has_run_user_code = True
        if self._has_new:
            self.start(run)
        run.rate.adopt()  # a listener may have set the rates of this step
        run.rate.keep_used(run.step)
        self._run_due_calls(run, _WITHIN_EPOCHS)
        if self._has_new:
            self.start(run)
        run.rate.adopt()
        self.find_next_due(run)
        self._at_boundary(run)

    def run_due_between_epochs(self, run: EngineRun) -> None:
        """Run everything that is due after this epoch, and everything due by time."""
        self._run_due_calls(run, _BETWEEN_EPOCHS)
        if self._is_woken:
            self.run_due(run)
        self._at_boundary(run)

    def catch_up(self, run: EngineRun) -> None:
        """After a resume, run what was still due when the run was interrupted or preempted."""
        units = _WITHIN_EPOCHS if run.is_in_epoch else _WITHIN_EPOCHS | _BETWEEN_EPOCHS
        if any(due.is_due(run) for due in self.dues if due.every.unit in units):
            if not run.is_in_epoch:
                self._run_due_calls(run, _BETWEEN_EPOCHS)
            self.run_due(run)

    def wake(self) -> None:
        """Have ``run_due`` called after the current step; safe in threads and signal handlers."""
        self._is_woken = True
        self.next_due = 0

    def close(self) -> None:
        """Cancel the alarm and remove all calls."""
        self._alarm.cancel()
        self._rings_at = math.inf
        self._own_dues.clear()
        self.dues.clear()

    def describe(self) -> list[PlanRow]:
        """All listeners and due calls, in the order of events and priorities."""
        rows = []
        for event in EVENTS:
            if event == "step_end":
                rows += [
                    PlanRow(event, due.priority, due.name, _due_cadence(due))
                    for due in self._all_dues()
                ]
                continue
            splits = SPLITS if event in SPLIT_EVENTS else ("",)
            listeners = {
                id(one): one for split in splits for one in self._events.listeners(event, split)
            }
            rows += [
                PlanRow(event, one.priority, one.owner, _listener_cadence(one))
                for one in listeners.values()
            ]
        return rows

    def _add(self, due: Due) -> None:
        self._own_dues.append(due)
        if self.is_started:
            self._has_new = True
            self.wake()

    def _all_dues(self) -> list[Due]:
        dues = [
            Due(
                listener.owner,
                listener.priority,
                listener.every or _EACH_STEP,
                _listener_call(listener),
            )
            for listener in self._events.listeners("step_end")
            if listener.accepts_split("train") and not (listener.every and listener.every.is_never)
        ]
        return sorted([*dues, *self._own_dues], key=lambda due: due.priority)

    def _run_due_calls(self, run: EngineRun, units: frozenset[str]) -> None:
        self.is_running_due = True
        try:
            for due in self.dues:
                if is_interrupted_or_preempted(run) or run.diverged_at is not None:
                    return  # the rest runs after a resume, or never after a rollback
                if due.every.unit in units and due.is_due(run):
                    due.run_and_reschedule(run)
        finally:
            self.is_running_due = False

    def find_next_due(self, run: EngineRun) -> None:
        """Find the next step at which something is due, and set the alarm for periods in time."""
        soonest = min((due.earliest_step(run) for due in self.dues), default=math.inf)
        soonest = min(soonest, run.agreed_step)
        soonest_time = min((due.at for due in self.dues if due.every.unit == "s"), default=math.inf)
        if soonest_time != self._rings_at:  # a new alarm needs a new thread
            self._rings_at = soonest_time
            self._alarm.cancel()
            if soonest_time < math.inf:
                self._alarm.set(soonest_time - run.clock.seconds, self._ring)
        self.next_due = sys.maxsize if soonest == math.inf else math.ceil(soonest)
        # A thread or a signal may have called wake() just before the line above.
        if self._is_woken:
            self.next_due = 0

    def _ring(self) -> None:
        self._rings_at = math.inf  # if it was too early, find_next_due sets it again
        self.wake()


def _keep_known(before: list[Due], dues: list[Due], run: EngineRun) -> list[Due]:
    """The dues; those known before keep their next times."""
    known: dict[Key, list[Due]] = {}
    for due in before:
        known.setdefault(_key(due), []).append(due)
    return [_keep_next_time(known.get(_key(due), []), due, run) for due in dues]


def _key(due: Due) -> Key:
    return due.name, due.priority, due.every, due.is_once


def _keep_next_time(known: list[Due], due: Due, run: EngineRun) -> Due:
    """The first known due of the same key, with the call of this one; else this one.

    Binding a task creates new listeners, so they are identified by name; equal names are
    distinguished by their order.
    """
    if not known:
        due.set_next_time(run)
        return due
    old = known.pop(0)
    old.call = due.call
    return old


def _listener_call(listener: Listener) -> Callable[[EngineRun], None]:
    return lambda run: run.events.call(listener, run)


def _due_cadence(due: Due) -> str:
    if due.is_once:
        return f"once at {due.every}"
    return "each" if due.every == _EACH_STEP else str(due.every)


def _listener_cadence(listener: Listener) -> str:
    every = listener.every
    is_periodic = listener.event == "epoch_end" and every is not None and every.unit == "ep"
    cadence = str(every) if is_periodic else "each"
    return f"{cadence} on {', '.join(listener.on)}" if listener.on else cadence
