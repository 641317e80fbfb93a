"""The progress of a run through its stages, and its limits."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, final

from epochal.config.condition import Condition
from epochal.engine.interfaces.every import Every
from epochal.engine.interfaces.monitor import Monitor
from epochal.engine.optim.build_rate import build_rate
from epochal.engine.run.plan import EVAL_PRIORITY, run_position
from epochal.errors import CheckpointError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from epochal.engine.interfaces.schedule import AnySchedule
    from epochal.engine.interfaces.stage import OptimChange, Stage
    from epochal.engine.optim.rate import Rate
    from epochal.engine.run.engine_run import EngineRun

LIMIT_REASONS = {"ep": "max_epochs", "st": "max_steps", "sa": "max_samples", "s": "max_time"}
"""Why a run or a stage of a certain length ends, by unit."""

EACH_EPOCH = Every(1, "ep")

TARGET, PLATEAU = "target", "plateau"
"""Reasons of a stage or run that a metric ended."""


@final
@dataclass(frozen=True, slots=True)
class TrainingLimits:
    """Totals of a run; None is unknown."""

    epochs: int | None = None
    steps: int | None = None
    seconds: float | None = None
    """The time after which it stops at the latest."""


@final
@dataclass(frozen=True, slots=True)
class ScheduleSpan:
    """The steps over which a schedule is counted, as planned."""

    first: int = 0
    steps: int | None = None
    """How many, at most; None if that is unknown."""

    per_epoch: int | None = None
    """Steps of its first epoch."""


@final
class StageProgress:
    """The stages of a run, at least one, and the one that it is in."""

    def __init__(self, stages: tuple[Stage, ...]) -> None:
        self.stages = stages
        self.index = 0
        self.end_reason = ""
        """Why the current stage is over; empty while it continues."""

        self.stage_start: dict[str, float] = {"st": 0, "ep": 0, "sa": 0}
        """Where the current stage started, by unit."""

        self.stage_start_batch: int | None = 0
        """The index in its epoch of the first batch of the stage; None if that is unknown."""

        self.changes: list[OptimChange] = []
        """Every change of the optimizer so far, in order."""

        self.stage_span = ScheduleSpan()
        """The steps of the current stage."""

        self.run_span = ScheduleSpan()
        """The steps of the run."""

        self.starts: list[int | None] = []
        """The step at which each stage starts, as planned; None if that is unknown."""

        self.auto_periods: tuple[Every, ...] = (EACH_EPOCH,)
        """What the period ``auto`` means for this run: whichever of these is sooner."""

        self.at_end: dict[str, Callable[[EngineRun], object]] = {}
        """Calls by name, made after the last step of a run that ends inside an epoch."""

        self.before_last_save: Callable[[EngineRun], object] = lambda run: None
        """Called when a run that stops is about to be saved, so that its metrics are saved too."""

        self.schedule: AnySchedule | None = None
        """That of the run, for stages without one."""

        self.pinned_rate: Rate | None = None
        """The owner of the learning rate that stays when the updater is bound again."""

        self._best: Monitor | None = None
        self._num_worse = 0
        self._saved_span: tuple[Any, ...] = ()

    @property
    def stage(self) -> Stage:
        """The current one."""
        return self.stages[self.index]

    @property
    def is_last(self) -> bool:
        """Whether the run ends with the current stage."""
        return self.index + 1 == len(self.stages)

    @property
    def ends_by_epochs(self) -> bool:
        """Whether all stages last epochs, or until a metric is reached."""
        return all(one.length is None or one.length.unit == "ep" for one in self.stages)

    def find_periods(self, every: Every | Literal["auto"]) -> tuple[Every, ...]:
        """The periods that an option means; of several, the sooner one counts."""
        return self.auto_periods if every == "auto" else (every,)

    @property
    def next_stage_ends_epoch(self) -> bool:
        """Whether the next stage, which starts now, starts a new epoch."""
        return bool(self.end_reason) and self.stages[self.index + 1].has_new_batches

    def advance(self, run: EngineRun) -> None:
        """Make the next stage the current one, from the run's position on."""
        self.index += 1
        self.end_reason = ""
        self.stage_start = {unit: run_position(run, unit) for unit in ("st", "ep", "sa")}
        if self.stage.length is not None and self.stage.length.is_time:
            self.stage_start["s"] = run.clock.due_seconds
        self.stage_start_batch = run.feed.next_position if run.is_in_epoch else 0
        self._best, self._num_worse, self._saved_span = None, 0, ()

    def set_stage_length(self, steps: int | None, per_epoch: int | None) -> None:
        """Set the steps of the current stage, unless a checkpoint says how many they are.

        A change of ``accumulate`` within the stage must not change its schedule.
        """
        length, *saved = self._saved_span or ("", None, None)
        if saved and length == str(self.stage.length):
            steps, per_epoch = saved
        self.stage_span = ScheduleSpan(int(self.stage_start["st"]), steps, per_epoch)

    def end(self, run: EngineRun, reason: str) -> None:
        """End the current stage after this step, or the run if it is the last stage."""
        if self.is_last:
            run.stop(reason, status="finished")
        elif not self.end_reason:
            self.end_reason = reason
            run.feed.interrupt()

    def plan_stage_end(self, run: EngineRun) -> None:
        """Plan the end of the current stage by its length."""
        stage, index = self.stage, self.index
        if stage.length is None:
            return
        unit, reason = stage.length.unit, LIMIT_REASONS[stage.length.unit]
        at = Every(self.stage_start.get(unit, 0) + stage.length.amount, unit)
        name = f"stop: {reason}" if self.is_last else f"end of stage {stage.name}"

        def end_in_time(run: EngineRun) -> None:
            if self.index == index:  # else a metric ended it before
                self.end(run, reason)

        run.plan.add_once(name, at, end_in_time)
        if self.is_last and unit != "ep":
            for name, call in self.at_end.items():
                run.plan.add_once(name, at, call, priority=EVAL_PRIORITY)

    def check_until(self, run: EngineRun, metrics: Mapping[str, float]) -> None:
        """End the current stage if new values of metrics say so."""
        until = self.stage.until
        if until is None or self.end_reason or run.step <= self.stage_start["st"]:
            return
        if isinstance(until, Condition):
            if until.metric in metrics and until.holds(metrics[until.metric]):
                self.end(run, TARGET)
            return
        assert run.monitor is not None  # required when the run was prepared
        if run.monitor.metric in metrics:
            is_best = self._get_best(run.monitor).update(metrics[run.monitor.metric])
            self._num_worse = 0 if is_best else self._num_worse + 1
            if self._num_worse >= until.patience:
                self.end(run, PLATEAU)

    def _get_best(self, monitor: Monitor) -> Monitor:
        """A monitor of the same metric that counts from the start of the stage."""
        if self._best is None:
            self._best = Monitor(monitor.metric, monitor.mode, min_delta=monitor.min_delta)
        return self._best

    @property
    def schedule_span(self) -> ScheduleSpan:
        """The steps over which the current schedule is counted."""
        return self.run_span if self.stage.schedule is None else self.stage_span

    def find_rate(self, run: EngineRun) -> Rate:
        """The owner of the learning rate of a run from its position on."""
        if self.pinned_rate is not None:
            return self.pinned_rate
        assert run.optimizer is not None
        span = self.schedule_span
        return build_rate(
            run.schedule,
            run.optimizer,
            step=run.step,
            offset=span.first,
            total_steps=span.steps,
            steps_per_epoch=span.per_epoch,
            monitor=run.monitor,
        )

    def state_dict(self) -> dict[str, Any]:
        """What a checkpoint keeps."""
        return {
            "index": self.index,
            "name": self.stage.name,
            "over": self.end_reason,
            "first": dict(self.stage_start),
            "first_batch": self.stage_start_batch,
            "span": (str(self.stage.length), self.stage_span.steps, self.stage_span.per_epoch),
            "changes": [dict(change) for change in self.changes],
            "best": None if self._best is None else self._best.state_dict(),
            "worse": self._num_worse,
        }

    def matches_checkpoint(self, state: Mapping[str, Any]) -> bool:
        """Whether stage and optimizer are those of a checkpoint."""
        return bool(state["index"] == self.index and state["changes"] == self.changes)

    def load_state_dict(self, state: Mapping[str, Any], monitor: Monitor | None) -> None:
        """Continue from a checkpoint; refuses that of a stage that the run does not have."""
        if state["index"] >= len(self.stages):
            raise CheckpointError(
                f"checkpoint: is of stage {state['index'] + 1}, {state['name']!r}, "
                f"and there are {len(self.stages)}\n  write that stage again, or start a new run"
            )
        self.index = state["index"]
        self.end_reason = "" if self.is_last else state["over"]
        self.stage_start, self.stage_start_batch = dict(state["first"]), state["first_batch"]
        self._saved_span = tuple(state["span"])
        self.changes = list(state["changes"])
        self._best, self._num_worse = None, state["worse"]
        if state["best"] is not None and monitor is not None:
            self._get_best(monitor).load_state_dict(state["best"])
