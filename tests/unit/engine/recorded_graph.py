"""A stand-in for a CUDA graph: operations are noted once, numbers frozen, and done again."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from typing_extensions import override

from epochal.engine.capture import capture_trial as trial
from epochal.engine.capture import captured_steps as captured
from epochal.engine.capture import captured_steps as choose
from epochal.engine.capture.batch_layout import map_tensors
from epochal.engine.step.build_step import BatchFunctions

if TYPE_CHECKING:
    import pytest

    from epochal.engine import Run


class Recorder(TorchDispatchMode):
    """Notes every operation with its arguments and results."""

    def __init__(self) -> None:
        super().__init__()
        self.operations: list[tuple[Any, Any, Any, Any]] = []

    @override
    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        self.operations.append((func, args, kwargs or {}, out))
        return out


class RecordedGraph:
    """Runs the operations of one step again, on the same tensors; Python is not asked."""

    captures = 0
    replays = 0

    def __init__(self, run: Run, update: Any, microbatches: Any, context: Any) -> None:
        RecordedGraph.captures += 1
        self._run = run
        inputs, self.inputs = map_tensors(microbatches, lambda tensor: tensor.detach().clone())
        recorder, report = Recorder(), run.part(BatchFunctions).report
        with (
            run.finishing_batches_by(report),
            run.meter.capture_additions() as self._notes,
            recorder,
        ):
            update(run, inputs)
        self._operations = recorder.operations

    def replay(self, tensors: list[Tensor]) -> None:
        RecordedGraph.replays += 1
        for target, source in zip(self.inputs, tensors, strict=True):
            if target is not source:
                target.copy_(source)
        with torch.no_grad():
            for function, args, kwargs, noted in self._operations:
                if not function.is_view:
                    _write(noted, function(*args, **kwargs))
        self._run.meter.replay_additions(self._notes)

    def show_gradients(self) -> None:
        pass


def _write(noted: Any, result: Any) -> None:
    for target, source in zip(tree_leaves(noted), tree_leaves(result), strict=True):
        if isinstance(target, Tensor) and target.data_ptr() != source.data_ptr():
            target.detach().copy_(source)


class Context:
    def __init__(self, device: torch.device) -> None:
        pass

    def warm_up(self, run: Run, update: Any, microbatches: Any) -> None:
        update(run, microbatches)


def record_graphs(monkeypatch: pytest.MonkeyPatch, *, draws: bool = False) -> None:
    """Let runs on the CPU capture their steps in this way.

    Args:
        monkeypatch: Undoes it.
        draws: Let steps draw random numbers, which a device would draw in a graph too.
    """
    if draws:
        monkeypatch.setattr(trial, "find_used_generator", lambda *_: "")
    monkeypatch.setattr(captured, "StepGraph", RecordedGraph)
    monkeypatch.setattr(captured, "CaptureContext", Context)
    for module in (captured, choose):
        monkeypatch.setattr(module, "find_capture_obstacle", lambda run: "")
    RecordedGraph.captures = RecordedGraph.replays = 0
