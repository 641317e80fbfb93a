"""Forward pass and loss as one compiled function, and steps that use it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, final

import torch

from epochal.engine.step.build_step import BatchFunctions
from epochal.engine.step.task_calls import TaskCalls
from epochal.errors import ConfigError, Problem, nearest

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from epochal.engine.feed.feed import Microbatches
    from epochal.engine.interfaces.task import Batch
    from epochal.engine.run.engine_run import EngineRun
    from epochal.engine.step.build_step import Update

    Compute = Callable[[Batch], tuple[Batch, Any, Any, Any]]

DEFAULT_BACKEND = "inductor"
_MODES: dict[str, dict[str, Any]] = {
    "default": {},
    "max-autotune": {"max_autotune": True, "coordinate_descent_tuning": True},
}


@final
class CompiledSteps:
    """Takes steps with a compiled forward pass, compiled again when its parts change.

    Args:
        run: Ready to train.
        update: Takes an eager step.
    """

    def __init__(self, run: EngineRun, update: Update) -> None:
        self._run = run
        self._update = update
        self._calls = run.part(TaskCalls)
        self._plain: Compute = run.part(TaskCalls).compute
        self._functions: object = None

    def __call__(self, microbatches: Microbatches) -> None:
        """Take one step."""
        loss = self._run.loss
        if loss is not None and not loss.is_complete:
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
    """Refuse a backend or options that torch does not know, before the first step.

    Raises:
        ConfigError: A name is unknown.
    """
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
    """``run.part(TaskCalls).compute``, compiled with the backend of the config.

    The compiled code returns the model's output only if a metric or a listener needs it: writing
    the logits of a language model to memory is most of what a step takes.

    Args:
        run: Its present calls are compiled.
        has_one_shape: Compile for one shape, not for varying sizes.
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
