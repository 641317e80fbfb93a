"""The speed of a run, the time it took so far, and the time left."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, final

from epochal.records.metrics.time_spent import DATA_WAIT, STEPS

if TYPE_CHECKING:
    from epochal.engine.run.engine_run import EngineRun
    from epochal.records.metrics.time_spent import TimeSpent


@final
@dataclass(frozen=True, slots=True)
class Speed:
    """The speed of steps; all zero if there were none."""

    steps: int
    step_seconds: float
    """Mean time of a step, with the wait for data but without evaluations."""

    data_seconds: float
    """Mean time a step waited for its data."""

    samples_per_second: float


@final
class SpeedMeter:
    """The speed between one read and the next; each reader needs its own."""

    def __init__(self, run: EngineRun) -> None:
        self._run = run
        self._mark = self._position()

    def read(self) -> Speed:
        """The speed since the last read."""
        before, self._mark = self._mark, self._position()
        steps, seconds, waited, samples = (
            now - then for now, then in zip(self._mark, before, strict=True)
        )
        if not steps or seconds <= 0:
            return Speed(0, 0.0, 0.0, 0.0)
        return Speed(int(steps), seconds / steps, waited / steps, samples / seconds)

    def _position(self) -> tuple[float, float, float, float]:
        run = self._run
        return run.step, run.clock.training_seconds, run.feed.wait_seconds, run.samples


def seconds_left(run: EngineRun) -> float | None:
    """The remaining seconds of the run at its speed so far, or None if unknown."""
    guesses = []
    if run.limits.steps is not None and run.step > run.first_step:
        seconds = run.clock.seconds - run.clock.first_seconds
        pace = seconds / (run.step - run.first_step)
        guesses.append((run.limits.steps - run.step) * pace)
    if run.limits.seconds is not None:
        guesses.append(run.limits.seconds - run.clock.seconds)
    return max(0.0, min(guesses)) if guesses else None


def read_spent(run: EngineRun) -> TimeSpent:
    """The time of a run so far, in all its processes; also of a released run."""
    feed = getattr(run, "feed", None)
    waits = None if feed is None else (feed.wait_seconds, feed.first_wait_seconds)
    return run.clock.times.read_spent(waits)


def read_speed(run: EngineRun) -> dict[str, float]:
    """Steps and samples per second of training in all processes; empty if there were no steps."""
    times = read_spent(run).times
    seconds = times.get(STEPS, 0.0) + times.get(DATA_WAIT, 0.0)
    if not run.step or seconds <= 0:
        return {}
    totals = {"steps": run.step, "samples": run.samples}
    if run.counts is not None:
        totals[run.count_unit] = int(run.counts.count("loss"))
    return {name: total / seconds for name, total in totals.items() if total}


def read_times(run: EngineRun) -> dict[str, float]:
    """Seconds of each part of a run so far, the largest first; also of a released run."""
    return dict(read_spent(run).times)


def read_device_time(run: EngineRun) -> dict[str, float]:
    """Measured step times of the device, and whether steps are captured; empty if not measured."""
    times = dict(run.device_time.read())
    if times and run.choices.get("step", "eager") != "eager":
        times["captured"] = 1.0
    return times
