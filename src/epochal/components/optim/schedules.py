"""Learning-rate schedules as functions of the step alone: constant, linear, cosine, Noam."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, final

from typing_extensions import override

from epochal.config import Duration, parse_duration
from epochal.engine.schedule import Schedule
from epochal.errors import ConfigError, Problem

if TYPE_CHECKING:
    from collections.abc import Callable


@final
class Constant(Schedule):
    """The learning rate as given, after an optional warm-up.

    Args:
        warmup: Linear growth at the start, in steps (``500``, ``500st``) or epochs (``1ep``).
        warmup_start: Factor of the learning rate at the first step of the warm-up.
    """

    def __init__(self, *, warmup: int | Duration = 0, warmup_start: float = 0.01) -> None:
        self._warmup = _Warmup(_Length("warmup", warmup), _share("warmup_start", warmup_start))

    @override
    def factor(self, step: int, total_steps: int | None) -> float:
        return self._warmup.factor(step)


@final
class Linear(Schedule):
    """A straight line down to ``min_factor`` of the learning rate at the end of the run.

    Args:
        warmup: Linear growth at the start, in steps (``500``, ``500st``) or epochs (``1ep``).
        warmup_start: Factor of the learning rate at the first step of the warm-up.
        min_factor: What is left of the learning rate at the end.
        over: What warm-up and descent take together, as ``warmup``; null: the whole run.
    """

    def __init__(
        self,
        *,
        warmup: int | Duration = 0,
        warmup_start: float = 0.01,
        min_factor: float = 0.0,
        over: int | Duration | None = None,
    ) -> None:
        start = _Warmup(_Length("warmup", warmup), _share("warmup_start", warmup_start))
        self._descent = _Descent(start, _share("min_factor", min_factor), over)

    @override
    def factor(self, step: int, total_steps: int | None) -> float:
        return self._descent.factor(step, total_steps, lambda progress: 1 - progress)


@final
class Cosine(Schedule):
    """Half a cosine wave down to ``min_factor`` of the learning rate at the end of the run.

    Args:
        warmup: Linear growth at the start, in steps (``500``, ``500st``) or epochs (``1ep``).
        warmup_start: Factor of the learning rate at the first step of the warm-up.
        min_factor: What is left of the learning rate at the end.
        over: What warm-up and descent take together, as ``warmup``; null: the whole run.
    """

    def __init__(
        self,
        *,
        warmup: int | Duration = 0,
        warmup_start: float = 0.01,
        min_factor: float = 0.0,
        over: int | Duration | None = None,
    ) -> None:
        start = _Warmup(_Length("warmup", warmup), _share("warmup_start", warmup_start))
        self._descent = _Descent(start, _share("min_factor", min_factor), over)

    @override
    def factor(self, step: int, total_steps: int | None) -> float:
        return self._descent.factor(step, total_steps, _half_wave)


@final
class Noam(Schedule):
    """Growth over the warm-up, then one over the square root of the step.

    The factor is that of the Transformer paper, so give the optimizer ``lr: 1.0``.

    Args:
        model_size: Width of the model; the factor falls with its square root.
        warmup: Way to the highest learning rate, in steps (``4000``) or epochs (``1ep``).
        scale: Multiplies the whole curve.
    """

    def __init__(
        self, *, model_size: int, warmup: int | Duration = 4000, scale: float = 1.0
    ) -> None:
        self._warmup = _Length("warmup", warmup)
        if model_size < 1:
            raise _problem("model_size", f"must be at least 1, got {model_size!r}")
        self._height = scale / math.sqrt(model_size)

    @override
    def factor(self, step: int, total_steps: int | None) -> float:
        number = float(step + 1)  # the curve counts updates from 1
        warmup = float(max(1, self._warmup.steps()))
        return self._height / max(math.sqrt(number), warmup * math.sqrt(warmup) / number)


@final
class _Length:
    """A part of the run in steps; epochs are counted by the run that is under way."""

    def __init__(self, key: str, length: int | str | Duration) -> None:
        self._key = key
        self._length = _parse(key, length)

    def steps(self) -> int:
        if isinstance(self._length, int):
            return self._length
        from epochal.engine.run import current_run

        per_epoch = current_run().feed.steps_per_epoch
        if per_epoch is None:
            what = f"cannot be {str(self._length)!r}: the loader does not know its length"
            raise _problem(self._key, what, hint=f"write it in steps: `{self._key}: 500st`")
        return math.ceil(self._length.amount * per_epoch)


@final
class _Warmup:
    """A straight line from ``start`` at step 0 up to 1 at the end, and 1 from there on."""

    def __init__(self, length: _Length, start: float) -> None:
        self.steps = length.steps
        self._start = start

    def factor(self, step: int) -> float:
        steps = self.steps()
        return 1.0 if step >= steps else self._start + (1 - self._start) * step / steps


@final
class _Descent:
    """A warm-up, then a shape that falls from 1 to ``floor``."""

    def __init__(self, warmup: _Warmup, floor: float, over: int | Duration | None) -> None:
        self._warmup = warmup
        self._floor = floor
        self._end = None if over is None else _Length("over", over)

    def factor(self, step: int, total_steps: int | None, shape: Callable[[float], float]) -> float:
        warmup = self._warmup.steps()
        if step < warmup:
            return self._warmup.factor(step)
        end = total_steps if self._end is None else self._end.steps()
        if end is None:
            raise _problem(
                "over",
                "must be given, because nobody knows how many steps this run takes",
                hint="set `over: 10000st`, or end the run by steps or epochs (train.for)",
            )
        progress = min(1.0, (step - warmup) / max(1, end - warmup))
        return self._floor + (1 - self._floor) * shape(progress)


def _half_wave(progress: float) -> float:
    return (1 + math.cos(math.pi * progress)) / 2


def _parse(key: str, length: int | str | Duration) -> int | Duration:
    """A number of steps, or a duration in epochs."""
    try:
        length = parse_duration(length) if isinstance(length, str) else length
    except ValueError as error:
        raise _problem(key, str(error)) from error
    if not isinstance(length, Duration):
        if length < 0:
            raise _problem(key, f"must not be negative, got {length!r}", hint=f"{key}: 500st")
        return length
    if length.unit not in ("st", "ep"):
        what = f"must be in steps or epochs, got {str(length)!r}"
        raise _problem(key, what, hint=f"{key}: 500st")
    return int(length.amount) if length.unit == "st" else length


def _share(key: str, value: float) -> float:
    if not 0 <= value <= 1:
        raise _problem(key, f"must be between 0 and 1, got {value!r}")
    return value


def _problem(key: str, what: str, *, hint: str = "") -> ConfigError:
    return ConfigError(Problem(f"schedule.{key}", what, hint=hint))
