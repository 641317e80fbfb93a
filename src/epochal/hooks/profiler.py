"""Profiler: profiles steps with torch's profiler: a trace and a table of operators."""

from __future__ import annotations

import logging
import os
import re
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated, Any, final

from torch.profiler import ProfilerActivity, profile, schedule
from typing_extensions import override

from epochal import durable
from epochal.config.bounds import AtLeast
from epochal.engine.interfaces.hook import Hook
from epochal.engine.run.engine_run import engine_run
from epochal.engine.run.speed import read_times
from epochal.errors import ConfigError, Problem
from epochal.records.metrics.time_spent import DATA_WAIT, format_precise_time, suggest_speedup

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from pathlib import Path

    from epochal.engine.interfaces.run import Run

    Averages = Iterable[Any]  # of torch's FunctionEventAvg, which has no types

logger = logging.getLogger(__name__)

TRACE_NAME = "trace.json.gz"
TABLE_NAME = "table.txt"
_PART = "profiling"
_SHOWN = 5
_TABLE_ROWS = 100
_LOG_LEVEL = "KINETO_LOG_LEVEL"
_NOTHING: tuple[int, float, dict[str, float]] = (0, 0.0, {})


@final
class Profiler(Hook):
    """Records a few steps in ``profile/trace.json.gz`` and ``profile/table.txt``.

    It does not change the training. If the run ends earlier, the steps recorded so far are
    written. The trace opens in ui.perfetto.dev.

    Args:
        wait: Steps to skip first; the first ones are never typical.
        warmup: Steps in which the profiler is on but nothing is recorded.
        steps: Steps to record.
        shapes: Record the shapes of operators' inputs.
        memory: Record allocations of tensors.
        stack: Record the lines of code that called each operator; slow.
    """

    priority = 50
    runners = ("train",)
    counts_as = _PART

    dir: Path | None = None
    """Where to write, instead of ``profile`` in the run's folder."""

    stops_run: bool = False
    """Whether the run ends when the steps are recorded."""

    result: Profile | None = None
    """The profile of the latest run."""

    def __init__(
        self,
        *,
        wait: Annotated[int, AtLeast(0)] = 5,
        warmup: Annotated[int, AtLeast(1)] = 2,
        steps: Annotated[int, AtLeast(1)] = 10,
        shapes: bool = False,
        memory: bool = False,
        stack: bool = False,
    ) -> None:
        for key, value, least in (("wait", wait, 0), ("warmup", warmup, 1), ("steps", steps, 1)):
            if not value >= least:
                what = f"must be at least {least}, got {value!r}"
                raise ConfigError(Problem(f"Profiler.{key}", what, hint=f"`{key}: {least}`"))
        self._wait, self._warmup, self._steps = wait, warmup, steps
        self._shapes, self._memory, self._stack = shapes, memory, stack
        self._torch: profile | None = None
        self._since = 0.0

    @property
    def num_steps_needed(self) -> int:
        """How many steps a run must have, so that one of them is recorded."""
        return self._wait + self._warmup + 1

    @override
    def run_start(self, run: Run) -> None:
        self.result = None
        self._taken = 0
        self._has_started = False
        self._dir = self.dir or (None if run.dir is None else run.dir / "profile")

    @override
    def stage_start(self, run: Run, name: str) -> None:
        if self._has_started:
            return
        self._has_started = True
        if any(isinstance(hook, Profiler) and hook._torch is not None for hook in run.hooks):
            # Torch refuses two that record at once, and may crash when the first one ends.
            logger.warning("Profiler: nothing is recorded: another Profiler of this run is on")
            return
        activities = [ProfilerActivity.CPU]
        if run.device.type == "cuda":
            activities.append(ProfilerActivity.CUDA)
        self._torch = profile(
            activities=activities,
            schedule=schedule(wait=self._wait, warmup=self._warmup, active=self._steps, repeat=1),
            acc_events=True,
            record_shapes=self._shapes,
            profile_memory=self._memory,
            with_stack=self._stack,
        )
        with _silence():
            self._torch.start()
        self._mark(run)

    @override
    def step_end(self, run: Run) -> None:
        if self._torch is None:
            return
        self._taken += 1
        recorded = self._taken - self._wait - self._warmup
        if recorded > 0:
            self._recorded = recorded, run.clock.seconds - self._since, read_times(engine_run(run))
        is_on = self._step(self._torch)
        if recorded == 0:
            self._mark(run)
        if recorded == self._steps:
            self._finish()
        if self.stops_run and (recorded == self._steps or not is_on):
            run.stop("profiled")

    @override
    def stage_end(self, run: Run, name: str) -> None:
        self._finish()

    @override
    def run_end(self, run: Run) -> None:
        self._finish()  # a failed run has no stage_end

    def _mark(self, run: Run) -> None:
        """Measure the recorded steps from here on."""
        self._recorded = _NOTHING
        self._before = read_times(engine_run(run))
        self._since = run.clock.seconds

    def _step(self, current: profile) -> bool:
        """Step the profiler of torch; False if it failed."""
        try:
            with _silence():
                current.step()
        except RuntimeError as error:  # there can be one profiler at a time
            logger.warning("Profiler: nothing is recorded: %s", error)
            self._torch = None
            return False
        return True

    def _finish(self) -> None:
        done, self._torch = self._torch, None
        if done is None:
            return
        with _silence():
            done.stop()
        steps, seconds, times = self._recorded
        if not steps:
            logger.warning(
                "Profiler: nothing was recorded: the run ended after %d steps, and at least %d "
                "are needed; choose a smaller wait or warmup",
                self._taken,
                self.num_steps_needed,
            )
            return
        operators, device_seconds = summarise(done.key_averages(), steps)
        spent = {part: times[part] - self._before.get(part, 0.0) for part in times if part != _PART}
        dir = self._write(
            done, "self_device_time_total" if device_seconds else "self_cpu_time_total"
        )
        self.result = Profile(steps, seconds / steps, operators, device_seconds, spent, dir)
        self._log_result(self.result)

    def _write(self, done: profile, order: str) -> Path | None:
        """Write the trace and the table, sorted by a column; returns the folder."""
        if self._dir is None:
            return None
        dir = self._dir
        table = done.key_averages().table(sort_by=order, row_limit=_TABLE_ROWS)
        try:
            if not dir.is_dir():
                durable.make_dir(dir)
            done.export_chrome_trace(str(dir / TRACE_NAME))
            durable.write_text(dir / TABLE_NAME, table)
        except OSError as error:
            logger.warning("Profiler: the profile was not written: %s", error)
            return None
        return dir

    def _log_result(self, result: Profile) -> None:
        is_cut = result.steps < self._steps
        count = f"{result.steps} of {self._steps}" if is_cut else f"{result.steps}"
        ending = ", then the run ended" if is_cut else ""
        place = "" if result.dir is None else f"; trace and table are in {result.dir}"
        logger.info("profiled %s steps%s%s", count, ending, place)
        for line in operator_lines(result, _SHOWN):
            logger.info("  %s", line)


@contextmanager
def _silence() -> Iterator[None]:
    """Keep Kineto from writing to the terminal when the profiler starts and stops."""
    previous = os.environ.get(_LOG_LEVEL)
    os.environ.setdefault(_LOG_LEVEL, "99")
    try:
        yield
    finally:
        if previous is None:
            del os.environ[_LOG_LEVEL]


_STEP_MARK = "ProfilerStep"
_BETWEEN_OPERATORS = "(Python, between operators)"
_PYTHON_FRAME = re.compile(r"\(\d+\): |^<built-in |^nn\.Module: ")  # lines of code, with stack=True
_MAX_NAME_LENGTH = 46
_BUSY_SHARE = 0.6


@final
@dataclass(frozen=True, slots=True)
class Operator:
    """One operator of torch or one kernel; all numbers are per step."""

    name: str
    calls: float
    cpu_seconds: float
    """Self time on the host, without operators it calls."""

    device_seconds: float
    """Time of the kernels that it started."""


@final
@dataclass(frozen=True)
class Profile:
    """The profile of a few steps, which are slower than without the profiler."""

    steps: int
    step_seconds: float
    """Mean time of a step on the host."""

    operators: list[Operator]
    """Slowest first."""

    device_seconds: float = 0.0
    """Time of all kernels per step; 0 on the CPU."""

    times: Mapping[str, float] = field(default_factory=dict)
    """Host time of these steps in seconds by part."""

    dir: Path | None = None
    """The folder with the trace and the whole table."""

    @property
    def busy_share(self) -> float:
        """The share of the time in which the device was busy."""
        return min(1.0, self.device_seconds / self.step_seconds) if self.step_seconds else 0.0

    @property
    def advice(self) -> str:
        """How to make such steps faster, in one sentence."""
        found = suggest_speedup(self.times, {}, shortest=0.0)
        if found and found != "no bottleneck found":
            return found
        if self.device_seconds and self.busy_share < _BUSY_SHARE:
            return (
                f"the device was busy {self.busy_share:.0%} of the time: engine.step: auto or "
                "graph takes work off the host"
            )
        if not self.operators:
            return "no operator was recorded"
        top, where = self.operators[0], "device" if self.device_seconds else "host"
        size = f"takes {_share(top, self):.0%} of the {where}'s time"
        if top.name == _BETWEEN_OPERATORS:
            remedy = "use larger batches or engine.step: compile"
            return f"Python between operators {size}: {remedy}"
        return f"{top.name} {size}"

    @property
    def shares(self) -> dict[str, float]:
        """Shares of the step time: data wait, host, and device busy in parallel."""
        total = sum(self.times.values())
        wait = self.times.get(DATA_WAIT, 0.0) / total if total else 0.0
        device = {"device": self.busy_share} if self.device_seconds else {}
        return {"data wait": wait, "host": 1 - wait, **device}


def summarise(averages: Averages, steps: int) -> tuple[list[Operator], float]:
    """The operators, and the seconds of all kernels, both per step."""
    rows = [one for one in averages if not _PYTHON_FRAME.search(one.key)]
    host = [one for one in rows if one.device_type.name == "CPU"]
    kernels = [one for one in rows if one.device_type.name != "CPU" and not one.is_user_annotation]
    total = sum(one.self_device_time_total for one in kernels)
    attributed = sum(one.self_device_time_total for one in host)
    # Kernels of a CUDA graph belong to no operator, so they are listed themselves.
    shown = host if 2 * attributed >= total else [*host, *kernels]
    found = [
        Operator(
            _BETWEEN_OPERATORS if one.key.startswith(_STEP_MARK) else one.key,
            one.count / steps,
            one.self_cpu_time_total / steps / 1e6,
            one.self_device_time_total / steps / 1e6,
        )
        for one in shown
    ]
    found.sort(key=lambda one: (-one.device_seconds, -one.cpu_seconds))
    return found, total / steps / 1e6


def operator_lines(profile: Profile, limit: int) -> list[str]:
    """A short table of the operators that take most time."""
    has_device = bool(profile.device_seconds)
    header = ("operator", "calls", "host", *(("device",) if has_device else ()), "share")
    rows = [
        (
            _shorten(one.name),
            f"{one.calls:.3g}",
            format_precise_time(one.cpu_seconds),
            *((format_precise_time(one.device_seconds),) if has_device else ()),
            f"{_share(one, profile):.0%}",
        )
        for one in profile.operators[:limit]
    ]
    first, *others = (max(map(len, column)) for column in zip(header, *rows, strict=True))
    return [
        "  ".join([row[0].ljust(first), *map(str.rjust, row[1:], others)])
        for row in (header, *rows)
    ]


def _share(one: Operator, profile: Profile) -> float:
    """Share of the time of all kernels, or of all operators on the host."""
    if profile.device_seconds:
        return one.device_seconds / profile.device_seconds
    total = sum(other.cpu_seconds for other in profile.operators)
    return one.cpu_seconds / total if total else 0.0


def _shorten(name: str) -> str:
    return name if len(name) <= _MAX_NAME_LENGTH else name[: _MAX_NAME_LENGTH - 1] + "…"
