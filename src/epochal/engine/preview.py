"""What the learning rate of a run will be at each step, found without taking any."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, final

from epochal.engine.rates import read_rates
from epochal.engine.schedule import Schedule, TorchSchedule, Warmup

if TYPE_CHECKING:
    from epochal.engine.run import Run

_POINTS = 1000
_UNKNOWN = 1000  # steps to look at, when nobody knows how many there are


@final
@dataclass(frozen=True)
class Preview:
    """Learning rates to come."""

    steps: tuple[int, ...]
    """Updates done before those whose rates follow."""

    rates: dict[str, tuple[float, ...]]
    """The rate of each group at each of these steps."""

    evaluations: tuple[int, ...] = ()
    """Steps after which ``val`` is evaluated."""

    note: str = ""
    """What could not be known."""


def preview_rates(run: Run) -> Preview:
    """The rates of a run that is prepared and will not be carried out.

    Its own schedule is moved on from step to step, so the run is of no use afterwards.
    """
    total = run.limits.steps or _UNKNOWN
    evaluations = _evaluations(run, total)
    rate, optimizer = run.updater.rate, run.optimizer
    per_epoch, plain = run.feed.steps_per_epoch, _plain(run.schedule)
    stride = -(-total // _POINTS)
    # A function of the step is asked only where it is drawn.
    may_leap = isinstance(plain, Schedule) and plain.unit == "step"
    marks = frozenset(evaluations)
    steps, found = [0], [list(rate.values)]
    _pretend_updates(optimizer)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # some schedulers of torch speak of their own past
        for step in range(1, total):
            is_drawn = step % stride == 0 or step == total - 1
            if rate.is_moved_by_steps and (is_drawn or not may_leap):
                rate.after_step(step)
            if per_epoch and step % per_epoch == 0:
                rate.after_epoch(step)
            if step in marks:
                rate.after_eval(step)
            if is_drawn:
                steps.append(step)
                found.append(list(rate.values))
    names = list(read_rates(optimizer, rate.values))
    rates = dict(zip(names, map(tuple, zip(*found, strict=True)), strict=True))
    return Preview(tuple(steps), rates, evaluations, _note(run, plain))


def _plain(schedule: object) -> object:
    return schedule.schedule if isinstance(schedule, Warmup) else schedule


def _evaluations(run: Run, total: int) -> tuple[int, ...]:
    """After which steps ``val`` is evaluated, if that is planned by steps or epochs."""
    every = run.options.train.eval_periods.get("val")
    if every is None or every.is_never or every.unit not in ("st", "ep"):
        return ()
    per_unit = 1 if every.unit == "st" else run.feed.steps_per_epoch
    if per_unit is None:
        return ()
    period = round(every.amount * per_unit)
    return tuple(range(period, total + 1, period))


def _pretend_updates(optimizer: Any) -> None:  # noqa: ANN401 - torch does not declare the attribute
    """Else torch's schedulers would warn that they are advanced before the first update."""
    optimizer._opt_called = True


def _note(run: Run, plain: object) -> str:
    notes = []
    if run.limits.steps is None:
        notes.append(f"nobody knows how many steps there are; these are the first {_UNKNOWN:,}")
    if isinstance(plain, TorchSchedule) and plain.needs_value:
        notes.append("drawn as if the monitored metric always became better")
    return "; ".join(notes)
