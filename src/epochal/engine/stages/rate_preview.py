"""What the learning rate of a run will be at each step, found without taking any."""

from __future__ import annotations

import math
import warnings
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, final

from epochal.engine.feed.feed import named_loaders
from epochal.engine.interfaces.schedule import Schedule, TorchSchedule, Warmup
from epochal.engine.optim.group_rates import read_rates
from epochal.engine.stages.transition import apply_next_stage

if TYPE_CHECKING:
    from epochal.engine.run import Run

_POINTS = 1000
_UNKNOWN = 1000  # steps to look at, when nobody knows how many there are


@final
@dataclass(frozen=True)
class RatePreview:
    """Learning rates to come."""

    steps: tuple[int, ...]
    """Updates done before those whose rates follow."""

    rates: dict[str, tuple[float, ...]]
    """The rate of each group at each of these steps; nan where there is no such group."""

    evaluations: tuple[int, ...] = ()
    """Steps after which ``val`` is evaluated."""

    stages: tuple[tuple[str, int], ...] = ()
    """The name and the first step of each stage, if there are several."""

    note: str = ""
    """What could not be known."""


def preview_rates(run: Run) -> RatePreview:
    """The rates of a run that is prepared and will not be carried out.

    Its own schedule is moved on from step to step, so the run is of no use afterwards.
    """
    total = run.limits.steps or _UNKNOWN
    look = _RatePreviewer(run, stride=-(-total // _POINTS))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # some schedulers of torch speak of their own past
        look.go_through_stage()
        while not run.course.is_last:
            look.change_stage()
            look.go_through_stage()
    names = dict.fromkeys(name for one in look.found for name in one)
    rates = {name: tuple(one.get(name, math.nan) for one in look.found) for name in names}
    stages = tuple(look.stages) if len(look.stages) > 1 else ()
    marks = tuple(look.evaluations)
    return RatePreview(
        tuple(look.steps), rates, marks, stages, "; ".join(dict.fromkeys(look.notes))
    )


@final
class _RatePreviewer:
    """Goes through a run, and keeps what the rates are."""

    def __init__(self, run: Run, *, stride: int) -> None:
        self._run, self._stride = run, stride
        self._into_epoch = 0
        self.steps: list[int] = []
        self.found: list[dict[str, float]] = []
        self.evaluations: list[int] = []
        has_val = named_loaders(run.task, "val")
        self._every = run.options.train.eval_periods.get("val") if has_val else None
        self.stages: list[tuple[str, int]] = []
        self.notes: list[str] = []

    def go_through_stage(self) -> None:
        """Move on to the last step of the current stage."""
        run = self._run
        rate, plain = run.updater.rate, _without_warmup(run.schedule)
        self.stages.append((run.course.stage.name, run.step))
        self._note(plain)
        _pretend_updates(run.optimizer)
        # A function of the step is asked only where it is drawn.
        may_leap = isinstance(plain, Schedule) and plain.unit == "step"
        last = run.step + (run.course.span.steps or _UNKNOWN)
        self._keep()
        while run.step < last:
            run.step += 1
            is_drawn = run.step % self._stride == 0 or run.step == last - 1
            if rate.is_moved_by_steps and (is_drawn or not may_leap):
                rate.after_step(run.step)
            self._pass_borders()
            if is_drawn and run.step < last:
                self._keep()

    def change_stage(self) -> None:
        """Begin the next stage, with what it changes."""
        run = self._run
        run.is_in_epoch = (
            self._into_epoch > 0 and not run.course.stages[run.course.index + 1].has_new_batches
        )
        run.feed.next_position = self._into_epoch * run.options.optim.accumulate
        if not run.is_in_epoch:
            self._into_epoch = 0
        apply_next_stage(run)

    def _pass_borders(self) -> None:
        """Let the rate know of the epoch and the evaluation that are over with this step."""
        run = self._run
        self._into_epoch += 1
        if self._into_epoch == run.feed.steps_per_epoch:
            self._into_epoch = 0
            run.epoch += 1
            run.updater.rate.after_epoch(run.step)
        if self._is_evaluated():
            self.evaluations.append(run.step)
            run.updater.rate.after_eval(run.step)

    def _is_evaluated(self) -> bool:
        every = self._every
        if every is None or every.is_never:
            return False
        if every.unit == "ep":
            return self._into_epoch == 0 and self._run.epoch % every.amount == 0
        return every.unit == "st" and self._run.step % every.amount == 0

    def _keep(self) -> None:
        run = self._run
        self.steps.append(run.step)
        self.found.append(read_rates(run.optimizer, run.updater.rate.values))

    def _note(self, plain: object) -> None:
        course = self._run.course
        if course.span.steps is None:
            where = f"stage {course.stage.name}: " if len(course.stages) > 1 else ""
            text = "nobody knows how many steps there are; these are the first"
            self.notes.append(f"{where}{text} {_UNKNOWN:,}")
        if isinstance(plain, TorchSchedule) and plain.needs_value:
            self.notes.append("drawn as if the monitored metric always became better")


def _without_warmup(schedule: object) -> object:
    return schedule.schedule if isinstance(schedule, Warmup) else schedule


def _pretend_updates(optimizer: Any) -> None:  # noqa: ANN401 - torch does not declare the attribute
    """Else torch's schedulers would warn that they are advanced before the first update."""
    optimizer._opt_called = True
