"""Schedules that do not need the length of the run: step, multi-step, exponential, Noam."""

from __future__ import annotations

import math
from itertools import pairwise
from typing import TYPE_CHECKING, Annotated, final

from typing_extensions import override

from epochal.config.bounds import Above, AtLeast
from epochal.engine.interfaces.schedule import Schedule, ScheduleLength, schedule_error

if TYPE_CHECKING:
    from epochal.config.duration import Duration


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
        self._gamma = _gamma(gamma)

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
        self._gamma = _gamma(gamma)
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
        if not gamma > 0:
            raise schedule_error("gamma", f"must be above 0, got {gamma!r}")
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
            what = "must be given, because there is no warm-up to take its length from"
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
        if model_size < 1:
            raise schedule_error("model_size", f"must be at least 1, got {model_size!r}")
        self._height = scale / math.sqrt(model_size)

    @override
    def factor(self, step: int, total_steps: int | None) -> float:
        number = float(step + 1)  # the curve counts updates from 1
        warmup = float(max(1, self.warmup_steps))
        return self._height / max(math.sqrt(number), warmup * math.sqrt(warmup) / number)


def _gamma(gamma: float) -> float:
    if not gamma >= 0:
        raise schedule_error("gamma", f"must be at least 0, got {gamma!r}")
    return gamma
