"""Decides from measured step times whether to compile captured steps, and whether to keep that."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, final

import torch

from epochal.engine.interfaces.every import Every
from epochal.engine.run.device_time import read_timing_position

if TYPE_CHECKING:
    from collections.abc import Callable
    from weakref import WeakMethod

    from epochal.engine.run.engine_run import EngineRun

logger = logging.getLogger(__name__)

MIN_SECONDS_TO_COMPILE = 600.0
"""Compile if the remaining captured steps will take longer than this."""

_WARMUP_STEPS = 20
_TIMED_STEPS = 50
_FEWEST_STEPS = 5
_TRIES = 20


@final
class CompileDecision:
    """Times steps on the device with two events, without a sync.

    Args:
        run: The run whose steps are timed.
        switch: Called with True to compile, and with False if that saved nothing. Weak, so that
            the memory of graphs is freed with their owner.
    """

    def __init__(self, run: EngineRun, switch: WeakMethod[Callable[[bool], None]]) -> None:
        self._run = run
        self._switch = switch
        self._is_over = False
        self._captured_seconds = 0.0
        self._compile_seconds = 0.0
        self._is_compiled = False
        self._from: torch.cuda.Event | None = None
        self._to: torch.cuda.Event | None = None
        self._begun: tuple[int, ...] = ()
        self._steps = _TIMED_STEPS
        self._tries = 0

    def time_steps(self, *, is_compiled: bool, seconds: float) -> None:
        """Time the next steps; capturing or compiling them took ``seconds``."""
        self._is_compiled = is_compiled
        self._compile_seconds = seconds
        self._from = self._to = None
        self._steps, self._tries = _TIMED_STEPS, 0
        if not self._is_over and (is_compiled or self._may_compile()):
            self._later(_WARMUP_STEPS, self._begin)

    def _begin(self, run: EngineRun) -> None:
        self._from = _record()
        self._begun = read_timing_position(run)
        self._later(self._steps, self._finish)

    def _finish(self, run: EngineRun) -> None:
        if read_timing_position(run)[1:] == self._begun[1:]:
            self._to = _record()
            self._later(1, self._conclude)
            return
        # An evaluation or the end of an epoch was in between: try again with fewer steps.
        self._steps = max(self._steps // 2, _FEWEST_STEPS)
        self._tries += 1
        if self._tries < _TRIES:
            self._begin(run)

    def _conclude(self, run: EngineRun) -> None:
        assert self._from is not None
        assert self._to is not None
        if not self._to.query():  # type: ignore[no-untyped-call]  # torch has no types here
            self._later(_WARMUP_STEPS, self._conclude)
            return
        seconds = self._from.elapsed_time(self._to) / 1000 / self._steps
        if self._is_compiled:
            self._report(seconds)
            return
        self._captured_seconds = seconds
        left = estimate_seconds_left(run, seconds)
        if left is not None and left > MIN_SECONDS_TO_COMPILE:
            logger.info("step: %.1f ms each, %.0f min to go: compiling", 1000 * seconds, left / 60)
            self._call_switch(True)

    def _report(self, seconds: float) -> None:
        self._is_over = True
        saved = self._captured_seconds - seconds
        share = 100 * saved / self._captured_seconds
        self._run.choices["compile_saves"] = saved
        text = f"{1000 * self._captured_seconds:.2f} -> {1000 * seconds:.2f} ms per step"
        if saved > 0:
            steps = self._compile_seconds / saved
            logger.info(
                "step: compiled: %s (%.0f %% less), paid back after %s steps",
                text,
                share,
                f"{steps:,.0f}",
            )
        else:
            logger.info("step: compiled: %s, which does not pay: captured again", text)
            self._call_switch(False)

    def _call_switch(self, is_compiling: bool) -> None:
        switch = self._switch()
        if switch is not None:
            switch(is_compiling)

    def _may_compile(self) -> bool:
        """Not in the last steps, nor with ``deterministic``: the clock decides when to switch."""
        run = self._run
        has_time = run.limits.steps is None or run.limits.steps - run.step > _TIMED_STEPS * 2
        return has_time and not run.options.engine.deterministic

    def _later(self, steps: int, call: Callable[[EngineRun], object]) -> None:
        at = Every(self._run.step + steps, "st")
        self._run.plan.add_once("time the step", at, call)


def estimate_seconds_left(run: EngineRun, step_seconds: float) -> float | None:
    """How long the remaining steps will take; None if the length is unknown."""
    guesses = []
    if run.limits.steps is not None:
        guesses.append((run.limits.steps - run.step) * step_seconds)
    if run.limits.seconds is not None:
        guesses.append(run.limits.seconds - run.clock.seconds)
    return min(guesses) if guesses else None


def _record() -> torch.cuda.Event:
    event = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]  # same
    event.record()
    return event
