"""Chooses how steps are taken; CUDA graphs are compared with eager steps first."""

from __future__ import annotations

import logging
from functools import partial
from time import perf_counter
from typing import TYPE_CHECKING, final
from weakref import WeakMethod

import torch

from epochal.engine.capture.batch_layout import (
    CaptureCandidates,
    UnknownLayoutError,
    copy_batch,
    flatten_tensors,
    list_tensors,
)
from epochal.engine.capture.capture_trial import (
    CaptureRefusedError,
    CaptureTrial,
    describe_user_line,
    uncounted_steps,
)
from epochal.engine.capture.compiled_steps import (
    CompileDecision,
    CompiledSteps,
    compile_forward_and_loss,
    require_compile_backend,
)
from epochal.engine.capture.cuda_graph import CaptureContext, StepGraph, is_host_read
from epochal.engine.capture.fingerprint import (
    Fingerprint,
    StepDependencies,
    find_fingerprint_change,
    groups_fingerprint,
    take_fingerprint,
)
from epochal.engine.capture.obstacles import find_capture_obstacle
from epochal.engine.step.microbatch import without_oom_retry
from epochal.engine.step.task_calls import TaskCalls
from epochal.engine.step.updater import Updater

if TYPE_CHECKING:
    from collections.abc import Hashable

    from torch import Tensor

    from epochal.engine.capture.batch_layout import CaptureCandidate
    from epochal.engine.feed.feed import Microbatches
    from epochal.engine.run.engine_run import EngineRun
    from epochal.engine.step.build_step import TakeStep, Update

logger = logging.getLogger(__name__)

WARMUP_STEPS = 3
"""Eager steps of a shape before it is captured; the graph is compared on their batches."""

MAX_GRAPHS = 8
MAX_CAPTURES = 50
STEPS_PER_CAPTURE = 10
"""More captures than ``MAX_CAPTURES`` need at least this many steps each."""

MAX_STEPS_WITHOUT_GRAPH = 64
"""Steps after which capturing ends if shapes do not repeat."""


@final
class CapturedSteps:
    """Takes eager steps first, then verified graphs; falls back to eager steps with a reason."""

    def __init__(self, run: EngineRun, update: Update, *, requested: str) -> None:
        self._run = run
        self._update = update
        self._captured = without_oom_retry(update)
        self._calls = run.part(TaskCalls)
        self._is_compiling = requested == "compile"
        self._graphs: dict[Hashable, StepGraph] = {}
        self._shapes = CaptureCandidates(max_shapes=MAX_GRAPHS)
        self._shown: StepGraph | None = None
        self._eager_steps = 0
        self._captures = 0
        self._first_step = run.step
        self._is_over = False
        self._has_reported = False
        self._capture_context = CaptureContext(run.device)
        self._fingerprint: Fingerprint = {}
        self._dependencies = StepDependencies()
        self._compile_decision = (
            CompileDecision(run, WeakMethod(self._switch)) if requested == "auto" else None
        )
        run.choices["step"] = "eager"

    def __call__(self, microbatches: Microbatches) -> None:
        """Take one step."""
        if self._run.events.has_run_user_code:
            self._recheck_graphs()
            if self._run.is_probing:
                self._shown = None  # the gradients are those of this step
                self._update(self._run, microbatches)
                return
        tensors: list[Tensor] = []
        graph = None
        key: Hashable = None
        if not self._is_over:
            try:
                key = flatten_tensors(microbatches, tensors)
                kind_of = self._run.part(Updater).kind_of
                if kind_of is not None:
                    key = (tuple, key, kind_of(self._run.step))
                graph = self._graphs.get(key)
            except (UnknownLayoutError, TypeError) as error:
                self._give_up(f"a batch holds a {error}, whose tensors cannot be found")
        if graph is None:
            self._take_uncaptured(key, microbatches, tensors)
            return
        if graph is not self._shown:
            graph.show_gradients()
            self._shown = graph
        graph.replay(tensors)

    def _replay_new_graph(self, graph: StepGraph, tensors: list[Tensor]) -> None:
        graph.show_gradients()  # not those of the trial, whose memory is freed
        self._shown = graph
        _empty_cuda_cache(self._run.device)
        graph.replay(tensors)

    def _take_uncaptured(
        self, key: Hashable, microbatches: Microbatches, tensors: list[Tensor]
    ) -> None:
        """Take a step of a shape without a graph, after trying to capture it."""
        self._shown = None
        if self._is_over or self._is_left_to_eager_steps(key):
            self._update(self._run, microbatches)
            return
        candidate = self._shapes.find(key)
        if candidate is not None and len(candidate.batches) >= WARMUP_STEPS:
            if self._capture(key, self._shapes.pop(key)):
                candidate.batches.clear()
                self._replay_new_graph(self._graphs[key], tensors)
                return
        else:
            self._shapes.add(key, microbatches, self._run)
        self._update(self._run, microbatches)
        self._count_eager_step()

    def _is_left_to_eager_steps(self, key: Hashable) -> bool:
        return len(self._graphs) >= MAX_GRAPHS or self._shapes.is_refused(key)

    def _count_eager_step(self) -> None:
        self._eager_steps += 1
        if self._eager_steps >= MAX_STEPS_WITHOUT_GRAPH and not self._graphs and not self._is_over:
            why = self._shapes.explain_differences()
            self._give_up(f"{why}: {len(self._shapes)} in {MAX_STEPS_WITHOUT_GRAPH} steps")

    def _capture(self, key: Hashable, candidate: CaptureCandidate) -> bool:
        """Try to capture a shape; whether it has a graph now."""
        run = self._run
        begun = perf_counter()
        with run.clock.times.measuring("capture"):
            trial = CaptureTrial(run, partial(self._captured, run), candidate.batches)
            try:
                _require_steady_groups(run, candidate)
                trial.watch_eager()
                if self._is_compiling:
                    # Compiled code may round differently, so the graph is first checked without it.
                    self._build_and_compare(trial, candidate, CaptureContext(run.device))
                    _empty_cuda_cache(run.device)
                graph, verdict = self._build_and_compare(
                    trial, candidate, self._capture_context, is_compiled=self._is_compiling
                )
            except CaptureRefusedError as refusal:
                self._refuse(key, str(refusal))
                return False
            except Exception as error:
                # Eager steps worked, so the error is from the capture or the compiler.
                _synchronize(run.device)
                logger.debug("step: not captured", exc_info=error)
                self._refuse(key, _describe(error))
                return False
            finally:
                trial.restore()
        if not self._graphs:
            run.feed.static_inputs.set_targets(graph.inputs)
        self._graphs[key] = graph
        self._captures += 1
        # The fingerprint covers the steps of all captured shapes.
        self._dependencies = self._dependencies.union(trial.dependencies)
        self._fingerprint = take_fingerprint(run, self._dependencies)
        self._report(verdict, perf_counter() - begun)
        return True

    def _build_and_compare(
        self,
        trial: CaptureTrial,
        candidate: CaptureCandidate,
        context: CaptureContext,
        *,
        is_compiled: bool = False,
    ) -> tuple[StepGraph, str]:
        """A graph of the step, and a description of how close it is to eager steps."""
        run = self._run
        example = candidate.batches[0]
        plain = run.part(TaskCalls).compute
        if is_compiled:
            run.part(TaskCalls).compute = compile_forward_and_loss(run, has_one_shape=True)
        trial.restore()
        try:
            with uncounted_steps(run):
                context.warm_up(run, self._captured, copy_batch(example))
            trial.restore()
            graph = StepGraph(run, self._captured, copy_batch(example), context)
        finally:
            run.part(TaskCalls).compute = plain
        verdict = trial.compare(
            lambda batch: graph.replay(list_tensors(batch)), is_exact=not is_compiled
        )
        return graph, verdict

    def _report(self, verdict: str, seconds: float) -> None:
        run = self._run
        run.choices["step"] = "compile" if self._is_compiling else "graph"
        if self._has_reported:
            return
        self._has_reported = True
        kind = "compiled and captured" if self._is_compiling else "captured"
        logger.info("step: %s, %s (%.1f s)", kind, verdict, seconds)
        if self._compile_decision is not None:
            self._compile_decision.time_steps(is_compiled=self._is_compiling, seconds=seconds)

    def _refuse(self, key: Hashable, reason: str) -> None:
        """Take eager steps for this shape, or for all shapes if none was captured before."""
        self._shapes.refuse(key)
        if self._graphs:
            logger.info("step: a further shape of batches stays eager: %s", reason)
        elif self._is_compiling and self._compile_decision is not None:
            self._is_compiling = False
            self._compile_decision = None
            self._drop_graphs()  # and the memory pool of the graph that failed
            logger.info("step: not compiled: %s", reason)
        else:
            self._give_up(reason)

    def _give_up(self, reason: str) -> None:
        self._is_over = True
        self._drop_graphs()
        self._run.choices["step"] = "eager"
        self._run.choices["step_reason"] = reason
        logger.info("step: eager: %s", reason)

    def _recheck_graphs(self) -> None:
        """After user code ran: drop graphs that no longer match what they were captured from."""
        run = self._run
        run.events.has_run_user_code = False
        run.rate.adopt()
        if self._is_over:
            return
        obstacle = find_capture_obstacle(run)
        if obstacle:
            self._give_up(obstacle)
        elif self._graphs:
            change = find_fingerprint_change(
                self._fingerprint, take_fingerprint(run, self._dependencies)
            )
            if run.part(TaskCalls) is not self._calls:
                change = "a method of the task"
            if change and self._is_captured_too_often():
                self._give_up(f"{change} keeps changing: captured {self._captures} times")
            elif change:
                logger.info("step: captured again, since %s changed", change)
                self._drop_graphs()
        self._calls = run.part(TaskCalls)

    def _is_captured_too_often(self) -> bool:
        """Whether captures take much of the time: each costs about as much as ten steps."""
        steps = self._run.step - self._first_step
        return self._captures >= MAX_CAPTURES and self._captures * STEPS_PER_CAPTURE > steps

    def _switch(self, is_compiling: bool) -> None:
        """Capture all shapes again, compiled or not."""
        self._is_compiling = is_compiling
        self._has_reported = False
        self._drop_graphs()

    def _drop_graphs(self) -> None:
        self._run.feed.static_inputs.set_targets([])
        self._graphs.clear()
        self._shapes.clear()
        self._shown = None
        self._eager_steps = 0
        self._capture_context = CaptureContext(self._run.device)


def _require_steady_groups(run: EngineRun, candidate: CaptureCandidate) -> None:
    """Refuse options that change with every step, such as the momentum under OneCycleLR."""
    change = find_fingerprint_change(candidate.groups, groups_fingerprint(run))
    if change:
        raise CaptureRefusedError(f"{change} changes with the steps, and a graph would keep it")


def _empty_cuda_cache(device: torch.device) -> None:
    """Free the cache of eager steps and the trial: graphs use a separate memory pool."""
    if device.type == "cuda":
        torch.cuda.empty_cache()


def _synchronize(device: torch.device) -> None:
    """Wait for the remaining work of a failed capture."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def _describe(error: BaseException) -> str:
    if error.__context__ is not None and "captur" in str(error):
        error = error.__context__  # in the step; CUDA could not end the capture after it
    if isinstance(error, torch.OutOfMemoryError):
        return "there is not enough memory for it"
    if is_host_read(error):
        return f"{describe_user_line(error)} reads a value from the device"
    first = (str(error).strip() or type(error).__name__).splitlines()[0]
    return f"{first} ({describe_user_line(error)})"


def choose_step(run: EngineRun, update: Update) -> TakeStep:
    """The function that takes the steps of a run, by ``engine.step`` and what the run allows."""
    requested = "eager" if run.is_debug else run.options.engine.step
    obstacle = "" if requested == "eager" else find_capture_obstacle(run)
    if requested == "compile" or (requested == "auto" and not obstacle):
        require_compile_backend(run)
    if requested != "eager" and not obstacle:
        return CapturedSteps(run, update, requested=requested)
    run.choices["step"] = "eager"
    if requested == "compile":
        run.choices["step"] = "compile"
        logger.info("step: compiled, not captured: %s", obstacle)
        return CompiledSteps(run, update)
    if requested == "graph" or (requested == "auto" and run.device.type == "cuda"):
        level = logging.WARNING if requested == "graph" else logging.INFO
        logger.log(level, "step: eager: %s", obstacle)
    return partial(update, run)
