"""Learning-rate schedules."""

from __future__ import annotations

import math
from itertools import pairwise
from typing import TYPE_CHECKING, Annotated, Literal, final

from typing_extensions import override

from epochal.config.bounds import Above, AtLeast, AtMost
from epochal.config.duration import Duration
from epochal.engine.interfaces.schedule import Schedule, ScheduleLength, schedule_error

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import TypeAlias

    Shape: TypeAlias = Callable[[float], float]


def _half_wave(progress: float) -> float:
    return (1 + math.cos(math.pi * progress)) / 2


_SHAPES: dict[str, Shape] = {
    "linear": lambda progress: 1 - progress,
    "cosine": _half_wave,
    "sqrt": lambda progress: 1 - math.sqrt(progress),
    "square": lambda progress: (1 - progress) ** 2,
}
"""Curves that fall from 1 to 0."""


@final
class Constant(Schedule):
    """A constant learning rate, after a warm-up if there is one."""

    @override
    def factor(self, step: int, total_steps: int | None) -> float:
        return 1.0


@final
class Linear(Schedule):
    """Linear decay to ``min_factor`` of the learning rate at the end of the run.

    Args:
        min_factor: Factor of the learning rate at the end.
        over: Length of the decay (``1000st``, ``5ep``); null: to the end of the run.
    """

    def __init__(
        self,
        *,
        min_factor: Annotated[float, AtLeast(0), AtMost(1)] = 0.0,
        over: int | Duration | None = None,
    ) -> None:
        self._floor = _share("min_factor", min_factor)
        self._span = _Span(over)

    @override
    def factor(self, step: int, total_steps: int | None) -> float:
        progress = self._span.progress(self, step, total_steps)
        return _fall(1 - progress, self._floor)


@final
class Cosine(Schedule):
    """Cosine decay to ``min_factor`` at the end of the run, optionally with restarts.

    Args:
        min_factor: Factor of the learning rate at the end of each cycle.
        over: Length of all cycles together (``1000st``, ``5ep``); null: to the end of the run.
        restarts: Number of warm restarts.
        growth: Length of each cycle relative to the previous one.
        peak_decay: Factor of the peak at each restart.
    """

    def __init__(
        self,
        *,
        min_factor: Annotated[float, AtLeast(0), AtMost(1)] = 0.0,
        over: int | Duration | None = None,
        restarts: Annotated[int, AtLeast(0)] = 0,
        growth: Annotated[float, Above(0)] = 1.0,
        peak_decay: Annotated[float, Above(0), AtMost(1)] = 1.0,
    ) -> None:
        self._floor = _share("min_factor", min_factor)
        self._span = _Span(over)
        _require("restarts", restarts >= 0, "at least 0", restarts)
        _require("growth", growth > 0, "above 0", growth)
        _require("peak_decay", 0 < peak_decay <= 1, "above 0 and at most 1", peak_decay)
        lengths = [growth**index for index in range(restarts + 1)]
        self._ends = [sum(lengths[: index + 1]) / sum(lengths) for index in range(restarts + 1)]
        self._peak_decay = peak_decay

    @override
    def factor(self, step: int, total_steps: int | None) -> float:
        steps = self._span.steps(self, total_steps)
        if len(self._ends) == 1:
            return _fall(_half_wave(min(1.0, step / max(1, steps))), self._floor)
        # Whole steps: rounding must not delay a restart.
        ends = [round(end * steps) for end in self._ends]
        wave = next((index for index, end in enumerate(ends) if step < end), len(ends) - 1)
        first = ends[wave - 1] if wave else 0
        progress = min(1.0, (step - first) / max(1, ends[wave] - first))
        peak = max(self._floor, self._peak_decay**wave)
        return self._floor + (peak - self._floor) * _half_wave(progress)


@final
class Polynomial(Schedule):
    """Polynomial decay: a power of the remaining share of the run, down to ``min_factor``.

    Args:
        power: 1 is a straight line, 2 falls faster at first.
        min_factor: Factor of the learning rate at the end.
        over: Length of the decay (``1000st``, ``5ep``); null: to the end of the run.
    """

    def __init__(
        self,
        *,
        power: Annotated[float, Above(0)] = 1.0,
        min_factor: Annotated[float, AtLeast(0), AtMost(1)] = 0.0,
        over: int | Duration | None = None,
    ) -> None:
        _require("power", power > 0, "above 0", power)
        self._power = power
        self._floor = _share("min_factor", min_factor)
        self._span = _Span(over)

    @override
    def factor(self, step: int, total_steps: int | None) -> float:
        progress = self._span.progress(self, step, total_steps)
        return _fall((1 - progress) ** self._power, self._floor)


@final
class OneCycle(Schedule):
    """One cycle: up to the learning rate, and down to almost 0 at the last step.

    Args:
        rise: Share of the steps before the peak.
        start_factor: Factor of the learning rate at the first step.
        end_factor: Factor at the last step.
        shape: Shape of the rise and of the fall.
        over: Length of the cycle (``1000st``, ``5ep``); null: to the end of the run.
    """

    def __init__(
        self,
        *,
        rise: Annotated[float, AtLeast(0), AtMost(1)] = 0.3,
        start_factor: Annotated[float, AtLeast(0), AtMost(1)] = 0.04,
        end_factor: Annotated[float, AtLeast(0), AtMost(1)] = 4e-6,
        shape: Literal["cosine", "linear"] = "cosine",
        over: int | Duration | None = None,
    ) -> None:
        self._rise = _share("rise", rise)
        self._start = _share("start_factor", start_factor)
        self._end = _share("end_factor", end_factor)
        self._shape = _SHAPES[shape]
        self._span = _Span(over)

    @override
    def factor(self, step: int, total_steps: int | None) -> float:
        last = self._span.steps(self, total_steps) - 1
        peak = self._rise * (last + 1) - 1
        if step < peak:
            return _fall(self._shape(1 - step / peak), self._start)
        progress = min(1.0, (step - peak) / max(1, last - peak))
        return _fall(self._shape(progress), self._end)


@final
class Wsd(Schedule):
    """Warm-up, stable, decay: a constant learning rate, and a decay only at the end.

    Args:
        decay: Share of the run without its warm-up, or a length (``1000st``).
        shape: Shape of the decay: ``linear``, ``cosine``, ``sqrt`` (fast at first), or ``square``.
        min_factor: Factor of the learning rate at the end.
        over: Length of stable and decay together (``1000st``); null: to the end of the run.
    """

    def __init__(
        self,
        *,
        decay: Annotated[float, AtLeast(0), AtMost(1)] | Duration = 0.1,
        shape: Literal["linear", "cosine", "sqrt", "square"] = "linear",
        min_factor: Annotated[float, AtLeast(0), AtMost(1)] = 0.0,
        over: int | Duration | None = None,
    ) -> None:
        self._decay: ScheduleLength | float
        if isinstance(decay, str | Duration):
            self._decay = ScheduleLength("decay", decay)
        else:
            self._decay = _share("decay", decay)
        self._shape = _SHAPES[shape]
        self._floor = _share("min_factor", min_factor)
        self._span = _Span(over)

    @override
    def factor(self, step: int, total_steps: int | None) -> float:
        steps = self._span.steps(self, total_steps)
        if isinstance(self._decay, ScheduleLength):
            decay = self._decay.steps(self.steps_per_epoch)
        else:
            decay = round(self._decay * steps)
        progress = (step - (steps - decay)) / max(1, decay)
        return _fall(self._shape(min(1.0, max(0.0, progress))), self._floor)


@final
class _Span:
    """The length of a schedule: ``over``, or the steps of the run."""

    def __init__(self, over: int | str | Duration | None) -> None:
        self._over = None if over is None else ScheduleLength("over", over, least=1)

    def steps(self, schedule: Schedule, total_steps: int | None) -> int:
        if self._over is not None:
            return self._over.steps(schedule.steps_per_epoch)
        if total_steps is None:
            raise schedule_error(
                "over",
                "required: the number of steps of this run is unknown",
                hint="set `over: 10000st`, or end the run by steps: train.for=10000st",
            )
        return total_steps

    def progress(self, schedule: Schedule, step: int, total_steps: int | None) -> float:
        """The share of the schedule that is done, from 0 to 1."""
        return min(1.0, step / max(1, self.steps(schedule, total_steps)))


def _fall(height: float, floor: float) -> float:
    """Scale a height between 0 and 1 to one between the floor and 1."""
    return floor + (1 - floor) * height


def _share(key: str, value: float) -> float:
    _require(key, 0 <= value <= 1, "between 0 and 1", value)
    return value


def _require(key: str, is_met: bool, condition: str, value: object) -> None:
    if not is_met:
        raise schedule_error(key, f"must be {condition}, got {value!r}")


@final
class Step(Schedule):
    """A drop of the learning rate at a fixed period, counted from the start of the run.

    Args:
        every: The period, in steps (``1000``, ``1000st``) or epochs (``30ep``).
        gamma: Factor of each drop.
    """

    counts_warmup = True

    def __init__(
        self,
        *,
        every: Annotated[int, AtLeast(1)] | Duration,
        gamma: Annotated[float, AtLeast(0)] = 0.1,
    ) -> None:
        self._every = ScheduleLength("every", every, least=1)
        self._gamma = gamma
        _require("gamma", gamma >= 0, "at least 0", gamma)

    @override
    def factor(self, step: int, total_steps: int | None) -> float:
        return self._gamma ** (step // self._every.steps(self.steps_per_epoch))


@final
class MultiStep(Schedule):
    """A drop of the learning rate at each milestone, counted from the start of the run.

    Args:
        milestones: In steps (``1000``, ``1000st``) or epochs (``30ep``), ascending.
        gamma: Factor of each drop.
    """

    counts_warmup = True

    def __init__(
        self,
        *,
        milestones: list[Annotated[int, AtLeast(1)] | Duration],
        gamma: Annotated[float, AtLeast(0)] = 0.1,
    ) -> None:
        self._milestones = [ScheduleLength("milestones", one, least=1) for one in milestones]
        self._gamma = gamma
        _require("gamma", gamma >= 0, "at least 0", gamma)
        for earlier, later in pairwise(self._milestones):
            if earlier.unit == later.unit and later.amount <= earlier.amount:
                what = f"must ascend, but {later} follows {earlier}"
                raise schedule_error("milestones", what)

    @override
    def factor(self, step: int, total_steps: int | None) -> float:
        passed = [step >= one.steps(self.steps_per_epoch) for one in self._milestones]
        return self._gamma ** sum(passed)


@final
class Exponential(Schedule):
    """Exponential decay: a factor of ``gamma`` per period, applied smoothly at each step.

    Args:
        gamma: Factor of the learning rate after one period.
        every: The period, in steps (``1``, ``100st``) or epochs (``1ep``).
    """

    def __init__(
        self,
        *,
        gamma: Annotated[float, Above(0)],
        every: Annotated[int, AtLeast(1)] | Duration = 1,
    ) -> None:
        _require("gamma", gamma > 0, "above 0", gamma)
        self._gamma = gamma
        self._every = ScheduleLength("every", every, least=1)

    @override
    def factor(self, step: int, total_steps: int | None) -> float:
        return float(self._gamma ** (step / self._every.steps(self.steps_per_epoch)))


@final
class InverseSqrt(Schedule):
    """Inverse square root of the step, starting with 1 at the end of the warm-up.

    Args:
        timescale: Steps (``1000``, ``1000st``) or epochs (``1ep``) until 71 % are left; null:
            the length of the warm-up.
    """

    def __init__(self, *, timescale: Annotated[int, AtLeast(1)] | Duration | None = None) -> None:
        is_given = timescale is not None
        self._timescale = ScheduleLength("timescale", timescale or 0, least=1) if is_given else None

    @override
    def factor(self, step: int, total_steps: int | None) -> float:
        scale = self.warmup_steps
        if self._timescale is not None:
            scale = self._timescale.steps(self.steps_per_epoch)
        if not scale:
            what = "required: there is no warm-up whose length could be used"
            raise schedule_error("timescale", what, hint="add warmup: 1000st, or timescale: 1000st")
        return math.sqrt(scale / (scale + step))


@final
class Noam(Schedule):
    """Linear growth over the warm-up, then the inverse square root of the step.

    The factor is that of the Transformer paper, so set ``lr: 1.0`` in the optimizer, and a
    ``warmup``, which is part of the curve: ``warmup_start`` has no effect.

    Args:
        model_size: Width of the model; the factor falls with its square root.
        scale: Multiplies the whole curve.
    """

    has_own_warmup = True

    def __init__(
        self,
        *,
        model_size: Annotated[int, AtLeast(1)],
        scale: Annotated[float, Above(0)] = 1.0,
    ) -> None:
        _require("model_size", model_size >= 1, "at least 1", model_size)
        self._height = scale / math.sqrt(model_size)

    @override
    def factor(self, step: int, total_steps: int | None) -> float:
        number = float(step + 1)  # the curve counts updates from 1
        warmup = float(max(1, self.warmup_steps))
        return self._height / max(math.sqrt(number), warmup * math.sqrt(warmup) / number)
