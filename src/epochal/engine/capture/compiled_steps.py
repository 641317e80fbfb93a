"""Forward pass and loss as one compiled function, and whether captured steps use it."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any, final

import torch

from epochal.engine.interfaces.every import Every
from epochal.engine.run.device_time import read_timing_position
from epochal.engine.step.build_step import BatchFunctions
from epochal.engine.step.task_calls import TaskCalls
from epochal.errors import ConfigError, Problem, nearest

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from weakref import WeakMethod

    from epochal.engine.feed.feed import Microbatches
    from epochal.engine.interfaces.task import Batch
    from epochal.engine.run.engine_run import EngineRun
    from epochal.engine.step.build_step import Update

    Compute = Callable[[Batch], tuple[Batch, Any, Any, Any]]

logger = logging.getLogger(__name__)

DEFAULT_BACKEND = "inductor"
_MODES: dict[str, dict[str, Any]] = {
    "default": {},
    "max-autotune": {"max_autotune": True, "coordinate_descent_tuning": True},
}

MIN_SECONDS_TO_COMPILE = 600.0
"""Compile if the remaining captured steps will take longer than this."""

_WARMUP_STEPS = 20
_TIMED_STEPS = 50
_MIN_TIMED_STEPS = 5
_MAX_TRIES = 20


@final
class CompiledSteps:
    """Takes steps with a compiled forward pass, compiled again when its parts change."""

    def __init__(self, run: EngineRun, update: Update) -> None:
        self._run = run
        self._update = update
        self._calls = run.part(TaskCalls)
        self._plain: Compute = run.part(TaskCalls).compute
        self._functions: object = None

    def __call__(self, microbatches: Microbatches) -> None:
        """Take one step."""
        loss = self._run.loss
        if self._run.is_probing:
            self._functions = None  # the next step is compiled again, from the compiler's cache
            self._calls.compute = self._plain
        elif loss is not None and not loss.is_complete:
            pass  # the first batch completes it, and is not compiled
        elif self._run.part(BatchFunctions) is not self._functions:
            self._compile()
        self._update(self._run, microbatches)

    def _compile(self) -> None:
        """Compile the calls of the run, which ``run.bind`` replaces."""
        calls = self._run.part(TaskCalls)
        if calls is not self._calls:
            self._calls, self._plain = calls, calls.compute
        calls.compute = self._plain
        calls.compute = compile_forward_and_loss(self._run, has_one_shape=False)
        self._functions = self._run.part(BatchFunctions)  # replaced too when a listener is added


def require_compile_backend(run: EngineRun) -> None:
    """Refuse an unknown backend or unknown options before the first step."""
    name, options = run.options.engine.compile_backend, run.options.engine.compile_options
    if name == DEFAULT_BACKEND:
        if options:  # listing the known ones takes seconds
            _require_options(options)
        return
    known = torch._dynamo.list_backends(exclude_tags=())
    if name not in known:
        meant = nearest(name, known)
        hint = f"did you mean {meant!r}?" if meant else f"write one of {', '.join(sorted(known))}"
        what = f"torch has no backend {name!r}"
        raise ConfigError(Problem("engine.compile_backend", what, hint=hint))


def _require_options(options: Mapping[str, Any]) -> None:
    known = torch._inductor.list_options()
    for name in options:
        if name.replace("-", "_") not in known:
            meant = nearest(name, known)
            hint = f"did you mean {meant!r}?" if meant else "see torch._inductor.list_options()"
            what = f"the backend {DEFAULT_BACKEND!r} has no option {name!r}"
            raise ConfigError(Problem("engine.compile_options", what, hint=hint))


def compile_forward_and_loss(run: EngineRun, *, has_one_shape: bool) -> Compute:
    """``run.part(TaskCalls).compute``, compiled for one shape or for varying sizes.

    The compiled code returns the model's output only if a metric or a listener needs it: writing
    the logits of a language model to memory is most of what a step takes.
    """
    plain: Compute = run.part(TaskCalls).compute
    dynamic = False if has_one_shape else run.options.engine.compile_dynamic
    if _is_output_seen(run):
        return _compile(run, plain, dynamic)

    def losses_and_metrics(batch: Batch) -> tuple[Any, Any]:
        _, _, metrics, losses = plain(batch)
        return metrics, losses

    compiled = _compile(run, losses_and_metrics, dynamic)

    def compute(batch: Batch) -> tuple[Batch, Any, Any, Any]:
        metrics, losses = compiled(batch)
        return batch, None, metrics, losses

    return compute


def _is_output_seen(run: EngineRun) -> bool:
    has_listeners = bool(run.events.listeners("batch_end", "train"))
    return bool(run.train_metrics) or run.part(TaskCalls).has_extra_metrics or has_listeners


def _compile(
    run: EngineRun, function: Callable[[Batch], Any], dynamic: bool | None
) -> Callable[[Batch], Any]:
    engine = run.options.engine
    options: dict[str, Any] = dict(engine.compile_options)
    if engine.compile_backend == DEFAULT_BACKEND:
        # torch takes a mode or options, so the mode is given as its options. Those for CUDA graphs
        # are left out: whole steps are captured.
        options = _MODES[engine.compile_mode] | options
        # Dropout draws the same numbers as in eager code.
        options.setdefault("fallback_random", True)
    return torch.compile(
        function,
        backend=engine.compile_backend,
        dynamic=dynamic,
        fullgraph=engine.compile_fullgraph,
        options=options or None,
    )


@final
class CompileDecision:
    """Times steps on the device with two events, without a sync, and switches compiling on or off.

    ``switch`` is weak, so that the memory of graphs is freed with their owner.
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
            self._call_after(_WARMUP_STEPS, self._begin)

    def _begin(self, run: EngineRun) -> None:
        self._from = _record()
        self._begun = read_timing_position(run)
        self._call_after(self._steps, self._finish)

    def _finish(self, run: EngineRun) -> None:
        if read_timing_position(run)[1:] == self._begun[1:]:
            self._to = _record()
            self._call_after(1, self._decide)
            return
        # An evaluation or the end of an epoch was in between: try again with fewer steps.
        self._steps = max(self._steps // 2, _MIN_TIMED_STEPS)
        self._tries += 1
        if self._tries < _MAX_TRIES:
            self._begin(run)

    def _decide(self, run: EngineRun) -> None:
        assert self._from is not None
        assert self._to is not None
        if not self._to.query():  # type: ignore[no-untyped-call]  # torch has no types here
            self._call_after(_WARMUP_STEPS, self._decide)
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
            logger.info("step: compiled: %s, not worth it: using captured steps again", text)
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

    def _call_after(self, steps: int, call: Callable[[EngineRun], object]) -> None:
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
