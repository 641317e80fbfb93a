"""Forward pass and loss as one compiled function, and steps that use it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, final

import torch

from epochal.errors import ConfigError, Problem, nearest

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from epochal.engine.feed.feed import Microbatches
    from epochal.engine.interfaces.task import Batch
    from epochal.engine.run import Run
    from epochal.engine.step.build_step import Update

    Compute = Callable[[Batch], tuple[Batch, Any, Any, Any]]

DEFAULT_BACKEND = "inductor"
_MODES: dict[str, dict[str, Any]] = {
    "default": {},
    "max-autotune": {"max_autotune": True, "coordinate_descent_tuning": True},
}


@final
class CompiledSteps:
    """Takes steps with a compiled forward pass, which is compiled anew when its parts change.

    Args:
        run: Ready to train.
        update: Takes a step in the usual way.
    """

    def __init__(self, run: Run, update: Update) -> None:
        self._run = run
        self._update = update
        self._calls = run.calls
        self._plain: Compute = run.calls.compute
        self._train_batch: object = None

    def __call__(self, microbatches: Microbatches) -> None:
        """Take one step."""
        loss = self._run.loss
        if loss is not None and not loss.is_complete:
            pass  # the first batch shows what it is fed with, which no compiler needs to see
        elif self._run.train_batch is not self._train_batch:
            self._compile()
        self._update(self._run, microbatches)

    def _compile(self) -> None:
        """Compile the calls of the run, which are others after ``run.bind``."""
        calls = self._run.calls
        if calls is not self._calls:
            self._calls, self._plain = calls, calls.compute
        calls.compute = self._plain
        calls.compute = compile_forward_and_loss(self._run, has_one_shape=False)
        self._train_batch = self._run.train_batch  # another one too when somebody listens


def require_compile_backend(run: Run) -> None:
    """Refuse a backend or options that torch does not know, before the first step.

    Raises:
        ConfigError: There is none of that name.
    """
    name, wished = run.options.engine.compile_backend, run.options.engine.compile_options
    if name == DEFAULT_BACKEND:
        if wished:  # to ask torch takes seconds
            _require_options(wished)
        return
    known = torch._dynamo.list_backends(exclude_tags=())
    if name not in known:
        meant = nearest(name, known)
        hint = f"did you mean {meant!r}?" if meant else f"write one of {', '.join(sorted(known))}"
        what = f"torch has no backend {name!r}"
        raise ConfigError(Problem("engine.compile_backend", what, hint=hint))


def _require_options(wished: Mapping[str, Any]) -> None:
    known = torch._inductor.list_options()
    for name in wished:
        if name.replace("-", "_") not in known:
            meant = nearest(name, known)
            hint = f"did you mean {meant!r}?" if meant else "see torch._inductor.list_options()"
            what = f"the backend {DEFAULT_BACKEND!r} has no option {name!r}"
            raise ConfigError(Problem("engine.compile_options", what, hint=hint))


def compile_forward_and_loss(run: Run, *, has_one_shape: bool) -> Compute:
    """What ``run.calls.compute`` does, compiled with the backend that the config names.

    The model's output leaves the compiled code only if somebody looks at it: then it has to be
    written to memory, which for the logits of a language model is most of what a step needs.

    Args:
        run: Its calls are compiled as they are now.
        has_one_shape: Compile for the first shape alone, not for sizes that vary.
    """
    plain: Compute = run.calls.compute
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


def _is_output_seen(run: Run) -> bool:
    has_listeners = bool(run.events.listeners("batch_end", "train"))
    return bool(run.train_metrics) or run.calls.has_extra_metrics or has_listeners


def _compile(
    run: Run, function: Callable[[Batch], Any], dynamic: bool | None
) -> Callable[[Batch], Any]:
    engine = run.options.engine
    options: dict[str, Any] = dict(engine.compile_options)
    if engine.compile_backend == DEFAULT_BACKEND:
        # torch takes a mode or options, so the mode is given as those that it stands for. Graphs
        # of its own are left out: steps are captured as a whole.
        options = _MODES[engine.compile_mode] | options
        # Dropout draws the numbers that eager code draws, so that both train the same.
        options.setdefault("fallback_random", True)
    return torch.compile(
        function,
        backend=engine.compile_backend,
        dynamic=dynamic,
        fullgraph=engine.compile_fullgraph,
        options=options or None,
    )
