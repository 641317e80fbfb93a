"""The plan: what happens between which steps, decided before the run."""

from __future__ import annotations

import math
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, final

from epochal.engine.events.due import END_PRIORITY, Alarm, Due
from epochal.engine.events.events import SPLIT_EVENTS, Events, call_listener
from epochal.engine.interfaces.every import Every
from epochal.engine.interfaces.hook import EVENTS
from epochal.engine.interfaces.splits import SPLITS
from epochal.engine.process.signals import PREEMPTED

if TYPE_CHECKING:
    from collections.abc import Callable

    from epochal.engine.events.listeners import Listener
    from epochal.engine.run import Run

EVAL_PRIORITY = 10_000

_EACH_STEP = Every(1, "st")
_WITHIN_EPOCHS = frozenset({"st", "sa", "s"})
_BETWEEN_EPOCHS = frozenset({"ep"})


Key = tuple[str, int, Every, bool]


@final
@dataclass(frozen=True, slots=True)
class PlanRow:
    """One line of the printed plan."""

    event: str
    priority: int
    hook: str
    cadence: str
    """``each``, a period such as ``50st``, or ``once at 500st``; with splits where limited."""


@final
class Plan:
    """Knows the next step at which anything is due, so that other steps need not ask.

    Args:
        events: Listeners of ``step_end`` are due by their period.
        at_boundary: Called after everything due at a position is done; saves the run.
        alarm: Wakes the plan when something is due by the clock.
    """

    def __init__(
        self,
        events: Events,
        *,
        at_boundary: Callable[[Run], object] = lambda run: None,
        alarm: Alarm | None = None,
    ) -> None:
        self.next_due = 0
        """The step after which ``run_due`` must be called; 0 is the current one."""

        self.is_started = False
        self._events = events
        self._at_boundary = at_boundary
        self._alarm = alarm or Alarm()
        self._own_dues: list[Due] = []
        self.dues: list[Due] = []
        """Everything that will happen, each knowing when."""

        self.is_running_due = False
        """Whether something happens now that would happen again if it were abandoned."""

        self._is_woken = False
        self._has_new = False
        self._rings_at = math.inf

    def add_period(
        self,
        name: str,
        every: Every,
        call: Callable[[Run], object],
        *,
        priority: int = EVAL_PRIORITY,
    ) -> Due:
        """Add something the engine does every so often, by default after the hooks of that step."""
        due = Due(name, priority, every, call)
        if not every.is_never:
            self._add(due)
        return due

    def add_once(
        self,
        name: str,
        at: Every,
        call: Callable[[Run], object],
        *,
        priority: int = END_PRIORITY,
    ) -> None:
        """Add something that happens once at a position, by default as the last thing there."""
        self._add(Due(name, priority, at, call, is_once=True))

    def start(self, run: Run) -> None:
        """Count all periods from the run's position; call again when something was added.

        What was there before keeps its next time, also in the midst of ``run_due``: nothing
        that is due gets lost, and nothing that happened once happens again.
        """
        self.is_started = True
        self._has_new = False
        self.dues = _keep_known(self.dues, self._all_dues(), run)
        self.find_next_due(run)

    def run_due(self, run: Run) -> None:
        """Do all that is due after this step, low priorities first.

        Whoever asked for means after an earlier step gets them before.
        """
        self._is_woken = False
        if run.meter.deliver():
            run.events.has_run_user_code = True
        if self._has_new:
            self.start(run)
        self._happen(run, _WITHIN_EPOCHS)
        if self._has_new:
            self.start(run)
        run.updater.rate.adopt()
        self.find_next_due(run)
        self._at_boundary(run)

    def run_due_between_epochs(self, run: Run) -> None:
        """Do all that is due after this many epochs, and what the clock made due meanwhile."""
        self._happen(run, _BETWEEN_EPOCHS)
        if self._is_woken:
            self.run_due(run)
        self._at_boundary(run)

    def catch_up(self, run: Run) -> None:
        """Do what was still due at this position when the run was preempted; after a resume."""
        units = _WITHIN_EPOCHS if run.is_in_epoch else _WITHIN_EPOCHS | _BETWEEN_EPOCHS
        if any(due.is_due(run) for due in self.dues if due.every.unit in units):
            if not run.is_in_epoch:
                self._happen(run, _BETWEEN_EPOCHS)
            self.run_due(run)

    def wake(self) -> None:
        """Have ``run_due`` called after the current step; safe from threads and signals."""
        self._is_woken = True
        self.next_due = 0

    def close(self) -> None:
        """Stop the clock and forget what was due."""
        self._alarm.cancel()
        self._rings_at = math.inf
        self._own_dues.clear()
        self.dues.clear()

    def describe(self) -> list[PlanRow]:
        """Every listener and every due thing, in the order of events and priorities."""
        rows = []
        for event in EVENTS:
            if event == "step_end":
                rows += [
                    PlanRow(event, due.priority, due.name, _due_cadence(due))
                    for due in self._all_dues()
                ]
                continue
            splits = SPLITS if event in SPLIT_EVENTS else ("",)
            heard = {
                id(one): one for split in splits for one in self._events.listeners(event, split)
            }
            rows += [
                PlanRow(event, one.priority, one.owner, _listener_cadence(one))
                for one in heard.values()
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

    def _happen(self, run: Run, units: frozenset[str]) -> None:
        self.is_running_due = True
        try:
            for due in self.dues:
                if run.stop_status == PREEMPTED or run.diverged_at is not None:
                    return  # the rest happens when the run goes on, or never
                if due.every.unit in units and due.is_due(run):
                    due.run_and_reschedule(run)
        finally:
            self.is_running_due = False

    def find_next_due(self, run: Run) -> None:
        """Find the step at which something is due next, and set the alarm for what goes by time."""
        soonest = min((due.earliest_step(run) for due in self.dues), default=math.inf)
        soonest_time = min((due.at for due in self.dues if due.every.unit == "s"), default=math.inf)
        if soonest_time != self._rings_at:  # an alarm costs a thread
            self._rings_at = soonest_time
            self._alarm.cancel()
            if soonest_time < math.inf:
                self._alarm.set(soonest_time - run.clock.seconds, self._ring)
        self.next_due = sys.maxsize if soonest == math.inf else math.ceil(soonest)
        # A thread or a signal may have woken the plan while the line above was overtaking it.
        if self._is_woken:
            self.next_due = 0

    def _ring(self) -> None:
        self._rings_at = math.inf  # should it have rung too early, it is set again
        self.wake()


def _keep_known(before: list[Due], dues: list[Due], run: Run) -> list[Due]:
    """The dues, those known before in the shape that knows when they come next."""
    known: dict[Key, list[Due]] = {}
    for due in before:
        known.setdefault(_key(due), []).append(due)
    return [_renew(known.get(_key(due), []), due, run) for due in dues]


def _key(due: Due) -> Key:
    return due.name, due.priority, due.every, due.is_once


def _renew(known: list[Due], due: Due, run: Run) -> Due:
    """The first of those known under the same key, doing what this one does; else this one.

    Listeners of a task are made anew each time it is bound, so they are known by name alone;
    equal names are told apart by their order, which stays.
    """
    if not known:
        due.aim(run)
        return due
    old = known.pop(0)
    old.call = due.call
    return old


def _listener_call(listener: Listener) -> Callable[[Run], None]:
    return lambda run: call_listener(listener, run)


def _due_cadence(due: Due) -> str:
    if due.is_once:
        return f"once at {due.every}"
    return "each" if due.every == _EACH_STEP else str(due.every)


def _listener_cadence(listener: Listener) -> str:
    every = listener.every
    is_periodic = listener.event == "epoch_end" and every is not None and every.unit == "ep"
    cadence = str(every) if is_periodic else "each"
    return f"{cadence} on {', '.join(listener.on)}" if listener.on else cadence
