"""Stages: parts of a training with settings of their own, and where a run is among them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, final

from typing_extensions import override

from epochal.config.condition import Condition
from epochal.engine.events.due import run_position
from epochal.engine.interfaces.every import Every
from epochal.engine.interfaces.monitor import Monitor
from epochal.engine.optim.build_rate import Rate, build_rate
from epochal.engine.stages.training_length import LIMIT_REASONS
from epochal.errors import CheckpointError, ConfigError, Problem

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from torch.optim import Optimizer

    from epochal.config.duration import Duration
    from epochal.engine.interfaces.schedule import AnySchedule
    from epochal.engine.interfaces.task import Loader
    from epochal.engine.run import Run

    OptimChange = Mapping[str, Any]  # keys of `optim` with their new values

TARGET, PLATEAU = "target", "plateau"
"""Why a stage is over that ends by a metric."""


@final
@dataclass(frozen=True, slots=True)
class Plateau:
    """The end of a stage in which the monitored metric does not become better any more.

    Args:
        patience: Values in a row that are no better than the best one of the stage.
    """

    patience: int

    @override
    def __str__(self) -> str:
        return f"plateau of {self.patience}"


@final
@dataclass(frozen=True, kw_only=True)
class Stage:
    """One part of a training; what it changes holds until a later stage changes it again."""

    name: str = "main"
    length: Duration | None = None
    """How long it takes, or how long at most if it ends by a metric."""

    until: Condition | Plateau | None = None
    """What ends it before that."""

    optim: OptimChange = field(default_factory=dict)
    """Keys of the section ``optim``; ``state`` says what becomes of the optimizer's own state."""

    schedule: Callable[[Optimizer], AnySchedule] | None = None
    """Makes its own schedule, which is counted from its start; None takes that of the run."""

    loss: Mapping[str, float] = field(default_factory=dict)
    """Weights of terms of the loss."""

    freeze: tuple[str, ...] = ()
    unfreeze: tuple[str, ...] = ()
    data: Mapping[str, Callable[[], Loader | Mapping[str, Loader]]] = field(default_factory=dict)
    """Makes the loaders of a split, when the stage begins."""

    batch_size: int | None = None
    """Of the training loader."""

    task: Mapping[str, Any] = field(default_factory=dict)
    """Keyword arguments of the task's ``on_stage_start``."""

    key: str = "stages.0"
    """Where it stands in the config, for messages."""

    @property
    def has_new_batches(self) -> bool:
        """Whether it reads other training batches, so that an epoch cannot go on in it."""
        return "train" in self.data or self.batch_size is not None


@final
@dataclass(frozen=True, slots=True)
class ScheduleSpan:
    """The steps over which a schedule is counted, as they were planned."""

    first: int = 0
    steps: int | None = None
    """How many, or the most there can be; None if nobody knows."""

    per_epoch: int | None = None
    """Steps of its first epoch."""


@final
class StageProgress:
    """The stages of a run, and where it is among them.

    Args:
        stages: In order; at least one.
    """

    def __init__(self, stages: tuple[Stage, ...]) -> None:
        self.stages = stages
        self.index = 0
        self.over = ""
        """Why the current stage is over; empty while it goes on."""

        self.first: dict[str, float] = {"st": 0, "ep": 0, "sa": 0}
        """Where the current stage began, by unit."""

        self.first_batch: int | None = 0
        """The index in its epoch of the first batch of the stage; None if nobody knows."""

        self.changes: list[OptimChange] = []
        """Every change of the optimizer so far, in order."""

        self.span = ScheduleSpan()
        """The steps of the current stage."""

        self.whole = ScheduleSpan()
        """The steps of the run."""

        self.starts: list[int | None] = []
        """The step at which each stage begins, as it was planned; None if nobody knows."""

        self.schedule: AnySchedule | None = None
        """That of the run, for stages without one of their own."""

        self.pinned_rate: Rate | None = None
        """What owns the learning rate also after the updater is bound anew."""

        self._best: Monitor | None = None
        self._worse = 0
        self._span: tuple[Any, ...] = ()

    @property
    def stage(self) -> Stage:
        """The current one."""
        return self.stages[self.index]

    @property
    def is_last(self) -> bool:
        """Whether the run ends with the current stage."""
        return self.index + 1 == len(self.stages)

    @property
    def next_stage_ends_epoch(self) -> bool:
        """Whether the epoch cannot go on in the stage that comes next."""
        return bool(self.over) and self.stages[self.index + 1].has_new_batches

    def advance(self, run: Run) -> None:
        """Let the next stage be the current one, from the run's position on."""
        self.index += 1
        self.over = ""
        self.first = {unit: run_position(run, unit) for unit in ("st", "ep", "sa")}
        if self.stage.length is not None and self.stage.length.is_time:
            self.first["s"] = run.clock.seconds
        self.first_batch = run.feed.next_position if run.is_in_epoch else 0
        self._best, self._worse, self._span = None, 0, ()

    def measure(self, steps: int | None, per_epoch: int | None) -> None:
        """Take in how long the current stage is; what a checkpoint says of it counts more.

        Else another number of batches per step in its midst would make another schedule of it.
        """
        length, *known = self._span or ("", None, None)
        if known and length == str(self.stage.length):
            steps, per_epoch = known
        self.span = ScheduleSpan(int(self.first["st"]), steps, per_epoch)

    def end(self, run: Run, reason: str) -> None:
        """Let the current stage be over after this step, or the run if it is the last one."""
        if self.is_last:
            run.stop(reason, status="finished")
        elif not self.over:
            self.over = reason
            run.feed.interrupt()

    def plan_stage_end(self, run: Run) -> None:
        """Plan the end of the current stage by its length."""
        stage, index = self.stage, self.index
        if stage.length is None:
            return
        unit, reason = stage.length.unit, LIMIT_REASONS[stage.length.unit]
        at = Every(self.first.get(unit, 0) + stage.length.amount, unit)
        name = f"stop: {reason}" if self.is_last else f"end of stage {stage.name}"

        def end_in_time(run: Run) -> None:
            if self.index == index:  # else a metric ended it before
                self.end(run, reason)

        run.plan.add_once(name, at, end_in_time)

    def watch(self, run: Run, metrics: Mapping[str, float]) -> None:
        """Look whether new values of metrics end the current stage."""
        until = self.stage.until
        if until is None or self.over or run.step <= self.first["st"]:
            return
        if isinstance(until, Condition):
            if until.metric in metrics and until.holds(metrics[until.metric]):
                self.end(run, TARGET)
            return
        assert run.monitor is not None  # asked for when the run was prepared
        if run.monitor.metric in metrics:
            self._wait(run, run.monitor, metrics[run.monitor.metric], until.patience)

    def _wait(self, run: Run, monitor: Monitor, value: float, patience: int) -> None:
        best = self._best_of(monitor)
        self._worse = 0 if best.update(value) else self._worse + 1
        if self._worse >= patience:
            self.end(run, PLATEAU)

    def _best_of(self, monitor: Monitor) -> Monitor:
        if self._best is None:
            self._best = Monitor(monitor.metric, monitor.mode, min_delta=monitor.min_delta)
        return self._best

    def find_rate(self, run: Run) -> Rate:
        """What owns the learning rate of a run from its position on."""
        if self.pinned_rate is not None:
            return self.pinned_rate
        assert run.optimizer is not None
        span = self.whole if self.stage.schedule is None else self.span
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
            "over": self.over,
            "first": dict(self.first),
            "first_batch": self.first_batch,
            "span": (str(self.stage.length), self.span.steps, self.span.per_epoch),
            "changes": [dict(change) for change in self.changes],
            "best": None if self._best is None else self._best.state_dict(),
            "worse": self._worse,
        }

    def matches_checkpoint(self, state: Mapping[str, Any]) -> bool:
        """Whether the parts of the run are still those of a checkpoint."""
        return bool(state["index"] == self.index and state["changes"] == self.changes)

    def load_state_dict(self, state: Mapping[str, Any], monitor: Monitor | None) -> None:
        """Go on from a checkpoint.

        Raises:
            CheckpointError: It is of a stage that is not there any more.
        """
        if state["index"] >= len(self.stages):
            raise CheckpointError(
                f"checkpoint: is of stage {state['index'] + 1}, {state['name']!r}, "
                f"and there are {len(self.stages)}\n  write that stage again, or start anew"
            )
        self.index, self.over = state["index"], "" if self.is_last else state["over"]
        self.first, self.first_batch = dict(state["first"]), state["first_batch"]
        self._span = tuple(state["span"])
        self.changes = list(state["changes"])
        self._best, self._worse = None, state["worse"]
        if state["best"] is not None and monitor is not None:
            self._best_of(monitor).load_state_dict(state["best"])


def merge_task_params(stages: Iterable[Stage]) -> dict[str, Any]:
    """What holds for the task in the last one of some stages."""
    return {name: value for stage in stages for name, value in stage.task.items()}


def require_monitor(course: StageProgress, monitor: Monitor | None) -> None:
    """Refuse a stage that ends by a monitor which there is not.

    Raises:
        ConfigError: There is one.
    """
    for stage in course.stages:
        if isinstance(stage.until, Plateau) and monitor is None:
            what = "a plateau is one of the run's monitor, and there is none"
            hint = "add monitor: -val/loss, or +val/acc if larger is better"
            raise ConfigError(Problem(f"{stage.key}.until", what, hint=hint))
