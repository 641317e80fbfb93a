"""The learning rate of a run at each step, without taking any."""

from __future__ import annotations

import math
import warnings
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, final

from epochal.engine.feed.feed import named_loaders
from epochal.engine.interfaces.schedule import Schedule, TorchSchedule, Warmup
from epochal.engine.optim.rate import read_rates
from epochal.engine.stages.transition import apply_next_stage

if TYPE_CHECKING:
    from epochal.engine.interfaces.every import Every
    from epochal.engine.run.engine_run import EngineRun

_MAX_POINTS = 1000
_STEPS_IF_UNKNOWN = 1000  # steps to show if the number of steps is unknown


@final
@dataclass(frozen=True)
class RatePreview:
    """The learning rates of a run, as planned."""

    steps: tuple[int, ...]
    """Updates before those whose rates follow."""

    rates: dict[str, tuple[float, ...]]
    """The rate of each group at each of these steps; nan where there is no such group."""

    evaluations: tuple[int, ...] = ()
    """Steps after which ``val`` is evaluated."""

    stages: tuple[tuple[str, int], ...] = ()
    """The name and the first step of each stage, if there are several."""

    note: str = ""
    """What is unknown."""


def preview_rates(run: EngineRun) -> RatePreview:
    """The rates of a run that is prepared and will not be executed.

    The schedule of the run is moved from step to step, so the run cannot be used afterwards.
    """
    total = run.limits.steps or _STEPS_IF_UNKNOWN
    preview = _RatePreviewer(run, stride=-(-total // _MAX_POINTS))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # some schedulers of torch warn about their own calls
        preview.go_through_stage()
        while not run.stage_progress.is_last:
            preview.change_stage()
            preview.go_through_stage()
    names = dict.fromkeys(name for one in preview.rates for name in one)
    return RatePreview(
        tuple(preview.steps),
        {name: tuple(one.get(name, math.nan) for one in preview.rates) for name in names},
        tuple(preview.evaluations),
        tuple(preview.stages) if len(preview.stages) > 1 else (),
        "; ".join(dict.fromkeys(preview.notes)),
    )


@final
class _RatePreviewer:
    """Moves the schedule of a run through its steps, and notes the rates."""

    def __init__(self, run: EngineRun, *, stride: int) -> None:
        self._run, self._stride = run, stride
        self._step_in_epoch = 0
        has_val = named_loaders(run.task, "val")
        self._periods = run.eval_periods.get("val", ()) if has_val else ()
        self.steps: list[int] = []
        self.rates: list[dict[str, float]] = []
        self.evaluations: list[int] = []
        self.stages: list[tuple[str, int]] = []
        self.notes: list[str] = []

    def go_through_stage(self) -> None:
        """Move to the last step of the current stage."""
        run, progress = self._run, self._run.stage_progress
        rate, schedule = run.rate, run.schedule
        plain = schedule.schedule if isinstance(schedule, Warmup) else schedule
        self.stages.append((progress.stage.name, run.step))
        self._note_unknown(plain)
        optimizer: Any = run.optimizer  # torch does not declare the attribute
        optimizer._opt_called = True  # else schedulers of torch would warn that no step was taken
        # A function of the step needs no call for steps that are not shown.
        may_skip = isinstance(plain, Schedule) and plain.unit == "step"
        last = run.step + (progress.stage_span.steps or _STEPS_IF_UNKNOWN)
        self._add_point()
        while run.step < last:
            run.step += 1
            is_shown = run.step % self._stride == 0 or run.step == last - 1
            if rate.is_moved_by_steps and (is_shown or not may_skip):
                rate.after_step(run.step)
            self._end_epoch_and_evaluation()
            if is_shown and run.step < last:
                self._add_point()

    def change_stage(self) -> None:
        """Start the next stage, with all that it changes."""
        run, progress = self._run, self._run.stage_progress
        starts_epoch = progress.stages[progress.index + 1].has_new_batches
        run.is_in_epoch = self._step_in_epoch > 0 and not starts_epoch
        run.feed.next_position = self._step_in_epoch * run.options.optim.accumulate
        if not run.is_in_epoch:
            self._step_in_epoch = 0
        apply_next_stage(run)

    def _end_epoch_and_evaluation(self) -> None:
        """Move the rate at the end of an epoch, and after an evaluation."""
        run = self._run
        self._step_in_epoch += 1
        if self._step_in_epoch == run.feed.steps_per_epoch:
            self._step_in_epoch = 0
            run.epoch += 1
            run.rate.after_epoch(run.step)
        if any(self._is_due(every) for every in self._periods):
            self.evaluations.append(run.step)
            run.rate.after_eval(run.step)

    def _is_due(self, every: Every) -> bool:
        if every.unit == "ep":
            return self._step_in_epoch == 0 and self._run.epoch % every.amount == 0
        return every.unit == "st" and self._run.step % every.amount == 0

    def _add_point(self) -> None:
        self.steps.append(self._run.step)
        self.rates.append(read_rates(self._run.optimizer, self._run.rate.values))

    def _note_unknown(self, plain: object) -> None:
        progress = self._run.stage_progress
        if progress.stage_span.steps is None:
            where = f"stage {progress.stage.name}: " if len(progress.stages) > 1 else ""
            text = "the number of steps is unknown; these are the first"
            self.notes.append(f"{where}{text} {_STEPS_IF_UNKNOWN:,}")
        if isinstance(plain, TorchSchedule) and plain.needs_value:
            self.notes.append("drawn as if the monitored metric always became better")
