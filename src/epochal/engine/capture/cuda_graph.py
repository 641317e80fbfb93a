"""A whole training step as one CUDA graph over static inputs, and reads that a graph forbids."""

from __future__ import annotations

import warnings
from contextlib import contextmanager, suppress
from functools import partial
from typing import TYPE_CHECKING, final

import torch

from epochal.engine.capture.batch_layout import list_tensors, map_tensors
from epochal.engine.device.move import BatchMover
from epochal.engine.feed.static_inputs import capture_stream
from epochal.engine.interfaces.outcome import Outcome
from epochal.engine.step.build_step import BatchFunctions
from epochal.engine.step.updater import Updater

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from torch import Tensor

    from epochal.engine.feed.feed import Microbatches
    from epochal.engine.measure.sums import HostAdditions
    from epochal.engine.run.engine_run import EngineRun
    from epochal.engine.step.build_step import Update


@final
class CaptureContext:
    """The stream on which graphs are captured, and the memory pool they share."""

    def __init__(self, device: torch.device) -> None:
        self.stream = capture_stream(device)
        self.pool = torch.cuda.graph_pool_handle()

    def warm_up(self, run: EngineRun, update: Update, microbatches: Microbatches) -> None:
        """Take a step on this stream, so that libraries allocate their memory for it."""
        current = torch.cuda.current_stream(run.device)
        self.stream.wait_stream(current)
        with torch.cuda.stream(self.stream):
            update(run, microbatches)
        current.wait_stream(self.stream)

    def record(self, graph: torch.cuda.CUDAGraph, work: Callable[[], object]) -> None:
        """Capture what a function does on the device; if that fails, nothing is left behind.

        Not a context manager: since Python 3.12, a generator in which a second error is raised
        keeps the first one, and with it tensors of the step, until garbage is collected.
        """
        current = torch.cuda.current_stream(self.stream.device)
        try:
            # Refused by torch, since a wait that CUDA refuses makes the capture invalid.
            with self._capturing(graph), refusing_host_reads(self.stream.device):
                work()
        except BaseException:
            torch.cuda.set_stream(current)
            self._end_failed_capture()
            raise

    def _capturing(self, graph: torch.cuda.CUDAGraph) -> torch.cuda.graph:
        # Other threads, such as those that pin batches, may use the device meanwhile.
        return torch.cuda.graph(
            graph, pool=self.pool, stream=self.stream, capture_error_mode="thread_local"
        )

    def _end_failed_capture(self) -> None:
        """Clean up after a failed capture, which torch does not do if CUDA cannot end it."""
        device = self.stream.device_index
        with suppress(RuntimeError):  # a Python error has already ended the capture
            torch._C._cuda_endAllocateToPool(device, self.pool)
            torch._C._cuda_releasePool(device, self.pool)
        # Torch refuses further captures into the pool, since it also pins memory for it.
        self.pool = torch.cuda.graph_pool_handle()
        # The default generator stays in the state of the failed capture until another one ends.
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # torch warns that this one is empty
            with self._capturing(torch.cuda.CUDAGraph()):
                pass


@final
class StepGraph:
    """One captured step: batches are copied into its inputs, and it is replayed.

    Capturing computes nothing, so the state of the run does not change.
    """

    def __init__(
        self, run: EngineRun, update: Update, microbatches: Microbatches, context: CaptureContext
    ) -> None:
        self._run = run
        self._outcomes: list[Outcome] = []
        self._graph = torch.cuda.CUDAGraph()
        moved = tuple([run.feed.move(batch) for batch in microbatches])
        inputs, tensors = map_tensors(moved, lambda tensor: tensor.detach().clone())
        for tensor, source in zip(tensors, list_tensors(moved), strict=True):
            tensor.requires_grad_(source.requires_grad)
        # Aliases: inputs that require gradients could not be written to.
        self.inputs = [tensor.detach() for tensor in tensors]
        """What a replay reads; a batch made in these tensors is not copied."""

        self._notes = self._capture(update, inputs, context)
        self._parameters = list(run.part(Updater).parameters)
        self._gradients = [parameter.grad for parameter in self._parameters]

    def _capture(
        self, update: Update, inputs: Microbatches, context: CaptureContext
    ) -> HostAdditions:
        run = self._run
        with run.finishing_batches_by(self._finish), run.meter.capture_additions() as notes:
            context.record(self._graph, partial(update, run, inputs))
        return notes

    def _finish(self, outcome: Outcome) -> None:
        self._run.part(BatchFunctions).report(outcome)
        if self._run.train_metrics:
            # Without its history, which would keep nodes of this stream alive for eager steps.
            out = BatchMover(self._run.device, None, is_detached=True)(outcome.out)
            self._outcomes.append(Outcome(outcome.batch, out))

    def replay(self, tensors: list[Tensor]) -> None:
        """Take the step with these tensors, in the order of ``flatten_tensors``."""
        if tensors[0] is not self.inputs[0]:
            torch._foreach_copy_(self.inputs, tensors, non_blocking=True)
        self._graph.replay()
        self._run.meter.replay_additions(self._notes)
        for outcome in self._outcomes:
            self._run.part(BatchFunctions).measure(outcome)

    def show_gradients(self) -> None:
        """Set ``grad`` of the parameters to this graph's gradients, for hooks that read them."""
        for parameter, gradient in zip(self._parameters, self._gradients, strict=True):
            parameter.grad = gradient


@contextmanager
def noting_host_reads(device: torch.device) -> Iterator[list[str]]:
    """Collect torch's warnings about the host waiting for the device in a block; empty without any.

    Warnings of the block are not shown: it repeats steps that showed them.
    """
    found: list[str] = []
    if device.type != "cuda":
        yield found
        return
    with _sync_debug_mode("warn") as caught:
        yield found
    found += [str(one.message) for one in caught if is_host_read(one.message)]


@contextmanager
def refusing_host_reads(device: torch.device) -> Iterator[None]:
    """Raise an error before the host would wait for the device in a block."""
    if device.type != "cuda":
        yield
        return
    with _sync_debug_mode("error"):
        yield


def is_host_read(message: BaseException | str) -> bool:
    """Whether torch's error or warning is about the host waiting for the device."""
    return "synchronizing CUDA operation" in str(message)


@contextmanager
def _sync_debug_mode(mode: str) -> Iterator[list[warnings.WarningMessage]]:
    before = torch.cuda.get_sync_debug_mode()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        torch.cuda.set_sync_debug_mode(mode)  # warns that it does not find all reads
        try:
            yield caught
        finally:
            torch.cuda.set_sync_debug_mode(before)
