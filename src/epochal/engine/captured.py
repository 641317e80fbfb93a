"""Steps that are captured as they come: one graph for each shape of batches."""

from __future__ import annotations

import logging
from time import perf_counter
from typing import TYPE_CHECKING, final
from weakref import WeakMethod

import torch

from epochal.engine.capture import Graph, Workshop
from epochal.engine.compiled import compile_compute
from epochal.engine.frozen import (
    Fingerprint,
    find_change,
    groups_fingerprint,
    take_fingerprint,
)
from epochal.engine.layout import UnknownLayoutError, flatten, like
from epochal.engine.obstacles import find_obstacle
from epochal.engine.payback import Payback
from epochal.engine.trial import RefusedError, Trial, aside, describe_line

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable

    from torch import Tensor

    from epochal.engine.feed import Microbatches
    from epochal.engine.run import Run

    Update = Callable[[Run, Microbatches], object]

logger = logging.getLogger(__name__)

WARM_STEPS = 3
"""Steps of one shape that are taken eagerly before it is captured, and then compared."""

MAX_GRAPHS = 8
MAX_CAPTURES = 50
PATIENCE = 64
"""Steps after which shapes that never repeat are given up."""


@final
class CapturedSteps:
    """Takes steps eagerly at first, then as verified graphs; falls back with a reason.

    Args:
        run: Ready to train.
        update: Takes a step in the usual way.
        wish: ``auto``, ``graph`` or ``compile``.
    """

    def __init__(self, run: Run, update: Update, *, wish: str) -> None:
        self._run = run
        self._update = update
        self._calls = run.calls
        self._is_compiling = wish == "compile"
        self._graphs: dict[Hashable, Graph] = {}
        self._seen: dict[Hashable, list[Microbatches]] = {}
        self._first_groups: dict[Hashable, Fingerprint] = {}
        self._shown: Graph | None = None
        self._eager_steps = 0
        self._captures = 0
        self._is_over = False
        self._has_spoken = False
        self._workshop = Workshop(run.device)
        self._fingerprint: Fingerprint = {}
        self._task_names: set[str] | None = set()
        self._payback = Payback(run, WeakMethod(self._switch)) if wish == "auto" else None
        run.choices["step"] = "eager"

    def __call__(self, microbatches: Microbatches) -> None:
        """Take one step."""
        if self._run.events.has_acted:
            self._look_again()
        tensors: list[Tensor] = []
        graph = None
        key: Hashable = None
        if not self._is_over:
            try:
                key = flatten(microbatches, tensors)
                graph = self._graphs.get(key)
            except (UnknownLayoutError, TypeError) as error:
                self._give_up(f"a batch holds a {error}, whose tensors cannot be found")
        if graph is None:
            self._take_other(key, microbatches, tensors)
            return
        if graph is not self._shown:
            graph.show_gradients()
            self._shown = graph
        graph.replay(tensors)

    def _take_other(self, key: Hashable, microbatches: Microbatches, tensors: list[Tensor]) -> None:
        """Take a step of a shape that has no graph yet; perhaps it gets one now."""
        self._shown = None
        if self._is_over or (key not in self._seen and len(self._graphs) >= MAX_GRAPHS):
            self._update(self._run, microbatches)
            return
        seen = self._seen.setdefault(key, [])
        if len(seen) >= WARM_STEPS:
            del self._seen[key]
            if self._capture(key, seen):
                seen.clear()
                _give_back_memory(self._run.device)
                self._shown = self._graphs[key]
                self._graphs[key].replay(tensors)
                return
        else:
            if not seen:
                self._first_groups[key] = groups_fingerprint(self._run)
            seen.append(like(microbatches, lambda tensor: tensor.detach().clone())[0])
        self._update(self._run, microbatches)
        self._count_eager_step()

    def _count_eager_step(self) -> None:
        self._eager_steps += 1
        if self._graphs or self._is_over:
            while len(self._seen) > MAX_GRAPHS:  # their batches take memory
                del self._seen[next(iter(self._seen))]
        elif self._eager_steps >= PATIENCE:
            self._give_up(f"shapes of batches do not repeat: {len(self._seen)} in {PATIENCE} steps")

    def _capture(self, key: Hashable, batches: list[Microbatches]) -> bool:
        """Try to capture a shape; whether it was worth it."""
        run = self._run
        begun = perf_counter()
        with run.clock.times.measuring("capture"):
            trial = Trial(run, self._take_eagerly, batches)
            try:
                self._require_steady_groups(key)
                trial.watch_eager()
                trial.undo()
                graph = self._build_graph(trial, batches[0])
                verdict = trial.judge(
                    lambda batch: graph.replay(_tensors(batch)), is_exact=not self._is_compiling
                )
            except RefusedError as refusal:
                self._refuse(key, str(refusal))
                return False
            except Exception as error:
                # User code ran well until now: what fails is the capture or the compiler.
                _settle(run.device)
                logger.debug("step: not captured", exc_info=error)
                self._refuse(key, _describe(error))
                return False
            finally:
                trial.undo()
        if not self._graphs:
            run.feed.aim.at(graph.inputs)
        self._graphs[key] = graph
        self._captures += 1
        self._note_names(trial.task_names)
        self._fingerprint = take_fingerprint(run, self._task_names)
        self._report(verdict, perf_counter() - begun)
        return True

    def _require_steady_groups(self, key: Hashable) -> None:
        """Refuse what moves from step to step, such as the momentum under OneCycleLR."""
        change = find_change(self._first_groups.pop(key, {}), groups_fingerprint(self._run))
        if change:
            raise RefusedError(f"{change} moves with the steps, and a graph would keep it")

    def _note_names(self, names: set[str] | None) -> None:
        """Attributes of the task count if the step of any shape reads them."""
        known = self._task_names
        self._task_names = None if names is None or known is None else known | names

    def _build_graph(self, trial: Trial, example: Microbatches) -> Graph:
        run = self._run
        plain = run.calls.compute
        if self._is_compiling:
            run.calls.compute = compile_compute(run, has_one_shape=True)
        try:
            with aside(run):
                self._workshop.warm_up(run, self._update, example)
            trial.undo()
            return Graph(run, self._update, example, self._workshop)
        finally:
            run.calls.compute = plain

    def _take_eagerly(self, microbatches: Microbatches) -> None:
        self._update(self._run, microbatches)

    def _report(self, verdict: str, seconds: float) -> None:
        run = self._run
        run.choices["step"] = "compile" if self._is_compiling else "graph"
        if self._has_spoken:
            return
        self._has_spoken = True
        kind = "compiled and captured" if self._is_compiling else "captured"
        logger.info("step: %s, %s (%.1f s)", kind, verdict, seconds)
        if self._payback is not None:
            self._payback.watch(is_compiled=self._is_compiling, seconds=seconds)

    def _refuse(self, key: Hashable, reason: str) -> None:
        """Leave this shape, or all of them if none was captured before, to eager steps."""
        if self._graphs:
            logger.info("step: a further shape of batches stays eager: %s", reason)
        elif self._is_compiling and self._payback is not None:
            self._is_compiling = False
            self._payback = None
            logger.info("step: not compiled: %s", reason)
        else:
            self._give_up(reason)

    def _give_up(self, reason: str) -> None:
        self._is_over = True
        self._drop_graphs()
        self._run.choices["step"] = "eager"
        self._run.choices["step_reason"] = reason
        logger.info("step: eager: %s", reason)

    def _look_again(self) -> None:
        """After code of the user ran: have the graphs what they need, and is it still true?"""
        run = self._run
        run.events.has_acted = False
        run.updater.rate.adopt()
        if self._is_over:
            return
        obstacle = find_obstacle(run)
        if obstacle:
            self._give_up(obstacle)
        elif self._graphs:
            change = find_change(self._fingerprint, take_fingerprint(run, self._task_names))
            if run.calls is not self._calls:
                change = "a method of the task"
            if change and self._captures >= MAX_CAPTURES:
                self._give_up(f"{change} keeps changing: captured {self._captures} times")
            elif change:
                logger.info("step: captured anew, since %s changed", change)
                self._drop_graphs()
        self._calls = run.calls

    def _switch(self, is_compiling: bool) -> None:
        """Capture everything anew, compiled or not."""
        self._is_compiling = is_compiling
        self._has_spoken = False
        self._drop_graphs()

    def _drop_graphs(self) -> None:
        self._run.feed.aim.at([])
        self._graphs.clear()
        self._seen.clear()
        self._first_groups.clear()
        self._shown = None
        self._eager_steps = 0
        self._workshop = Workshop(self._run.device)


def _tensors(microbatches: Microbatches) -> list[Tensor]:
    tensors: list[Tensor] = []
    flatten(microbatches, tensors)
    return tensors


def _give_back_memory(device: torch.device) -> None:
    """Let go of what eager steps and the trial needed: graphs have memory of their own."""
    if device.type == "cuda":
        torch.cuda.empty_cache()


def _settle(device: torch.device) -> None:
    """Let what is left of a failed capture come to its end."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def _describe(error: Exception) -> str:
    if isinstance(error, torch.OutOfMemoryError):
        return "there is not enough memory for it"
    first = (str(error).strip() or type(error).__name__).splitlines()[0]
    return f"{first} ({describe_line(error)})"
