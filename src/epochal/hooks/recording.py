"""Recording: writes points, events and status of a run into its record."""

from __future__ import annotations

from typing import TYPE_CHECKING, final

from typing_extensions import override

from epochal.engine.interfaces.every import Every
from epochal.engine.interfaces.hook import LOG_PRIORITY, Hook
from epochal.engine.process.signals import is_interrupted_or_preempted
from epochal.engine.run.engine_run import engine_run
from epochal.engine.run.speed import read_spent
from epochal.engine.run.variables import request_variables

if TYPE_CHECKING:
    from epochal.engine.interfaces.run import Run
    from epochal.engine.measure.meter import Window

STEP_STATUS_SECONDS = 5.0
EPOCH_STATUS_SECONDS = 1.0


@final
class Recording(Hook):
    """Writes points and events into the run's record.

    Training values are means since the last point, named ``train/<name>``. The learning rate of
    every group, the fp16 loss scale and all of ``run.variables`` are written with them. The engine
    records the means of epochs and the results of evaluations.

    Args:
        every: How often points are written; 0 writes only those of epochs.
    """

    priority = LOG_PRIORITY

    def __init__(
        self,
        *,
        every: Every = "10st",  # type: ignore[assignment]  # the schema shows what users type
    ) -> None:
        self.every = Every.parse(every)
        self._recorded_step = 0
        self._status_seconds = 0.0

    @override
    def run_start(self, run: Run) -> None:
        self._window: Window = run.meter.window("record")
        self._recorded_step = run.step
        run.writer.event("run_start", tag=run.tag, seed=run.seed, device=str(run.device))
        self._write_status(run)

    @override
    def step_end(self, run: Run) -> None:
        self._record(run)
        self._update_status(run, STEP_STATUS_SECONDS)

    @override
    def epoch_end(self, run: Run, split: str, metrics: dict[str, float]) -> None:
        if split == "train":
            self._update_status(run, EPOCH_STATUS_SECONDS)

    @override
    def eval_end(self, run: Run, split: str, metrics: dict[str, float]) -> None:
        run.writer.event(
            "eval_end", step=run.step, epoch=run.epoch_number, split=split, metrics=metrics
        )
        self._update_status(run, EPOCH_STATUS_SECONDS)

    @override
    def better_model(self, run: Run, value: float) -> None:
        metric = None if run.monitor is None else run.monitor.metric
        run.writer.event("better_model", step=run.step, metric=metric, value=value)

    @override
    def stage_end(self, run: Run, name: str) -> None:
        self._record_rest(run)

    @override
    def error(self, run: Run, error: BaseException) -> None:
        run.writer.event("error", step=run.step, type=type(error).__name__, message=str(error))

    @override
    def run_end(self, run: Run) -> None:
        run.writer.event("run_end", step=run.step, epoch=run.epoch, reason=run.stop_reason)
        # Last, because after a device failure its numbers cannot be read.
        self._record_rest(run)

    def state_dict(self) -> dict[str, int]:
        """The state for a checkpoint."""
        return {"recorded_step": self._recorded_step}

    def load_state_dict(self, state: dict[str, int]) -> None:
        """Continue from a checkpoint, whose meter window starts at that step."""
        self._recorded_step = state["recorded_step"]

    def _record_rest(self, run: Run) -> None:
        """Record the steps after the last full period."""
        if is_interrupted_or_preempted(run):
            return  # the resumed run adds these steps to its next point
        if run.step > self._recorded_step and self.every and not self.every.is_never:
            variables = request_variables(engine_run(run))
            _write(run, run.step, self._window.read(), variables())
            self._recorded_step = run.step

    def _record(self, run: Run) -> None:
        step, variables = run.step, request_variables(engine_run(run))
        self._window.read_later(lambda means: _write(run, step, means, variables()))
        self._recorded_step = step

    def _update_status(self, run: Run, gap_seconds: float) -> None:
        """Write the status unless that was done recently: each write costs a disk sync."""
        if run.clock.seconds - self._status_seconds >= gap_seconds:
            self._write_status(run)

    def _write_status(self, run: Run) -> None:
        self._status_seconds = run.clock.seconds
        times = read_spent(engine_run(run)).to_fields()  # for `epochal show` now, or after a kill
        run.writer.write_status("running", step=run.step, epoch=run.epoch, **times)


def _write(run: Run, step: int, means: dict[str, float], variables: dict[str, float]) -> None:
    points = {f"train/{name}": value for name, value in means.items()} | variables
    run.writer.log(points, step)
    for tracker in run.trackers:
        tracker.take_points(points, step)
