"""Tests of one captured step; a fake of torch's graph runs the code once and replays nothing."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pytest
import torch

from engine.parts import Sums, adder, make_run
from epochal.engine.capture import cuda_graph as capture
from epochal.engine.capture.cuda_graph import StepGraph
from epochal.engine.measure.meter import Meter
from epochal.engine.step.updater import Updater

if TYPE_CHECKING:
    from collections.abc import Iterator

    from epochal.engine import Run


class FakeCudaGraph:
    def __init__(self) -> None:
        self.replays = 0

    def replay(self) -> None:
        self.replays += 1


@contextmanager
def fake_recording(graph: FakeCudaGraph, **options: Any) -> Iterator[None]:
    assert options["capture_error_mode"] == "thread_local"
    yield


class FakeContext:
    pool = (0, 1)
    stream = None


@pytest.fixture(autouse=True)
def fake_cuda(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "CUDAGraph", FakeCudaGraph)
    monkeypatch.setattr(torch.cuda, "graph", fake_recording)


def prepared(**parts: Any) -> Run:
    run = make_run(Sums(), adder(), parts=parts)
    run.meter = Meter("cpu", is_async=True)
    run.bind()
    run.part(Updater).bind(run)
    return run


def captured(run: Run) -> tuple[StepGraph, Any]:
    batch = next(iter(run.task.train_loader))
    return StepGraph(run, run.part(Updater).update, (batch,), FakeContext()), batch  # type: ignore[arg-type]


def test_counts_are_noted_while_capturing_and_added_with_each_replay() -> None:
    run = prepared()
    window = run.meter.window()
    graph, batch = captured(run)
    run.meter.state_tensors()["0"].zero_()  # a real graph computes nothing yet
    graph.replay(batch)
    graph.replay(batch)
    run.meter.state_tensors()["0"].fill_(8.0)
    assert window.read()["loss"] == 1.0  # 8 in all, of two batches of 4


def test_batches_are_copied_into_static_inputs() -> None:
    run = prepared()
    graph, batch = captured(run)
    other = [tensor + 1 for tensor in batch]
    before = [tensor.clone() for tensor in batch]
    graph.replay(other)
    assert all(torch.equal(a, b) for a, b in zip(batch, before, strict=True))
    assert all(torch.equal(a, b) for a, b in zip(graph.inputs, other, strict=True))


def test_a_batch_that_was_made_in_the_inputs_is_not_copied() -> None:
    graph, _ = captured(prepared())
    before = [tensor.clone() for tensor in graph.inputs]
    graph.replay(graph.inputs)
    assert all(torch.equal(a, b) for a, b in zip(graph.inputs, before, strict=True))


def test_inputs_that_the_task_wants_gradients_of_can_be_written() -> None:
    class Forces(Sums):
        def pre_batch_forward(self, batch: Any) -> Any:
            batch[0].requires_grad_()
            return batch

    run = make_run(Forces(), adder())
    run.meter = Meter("cpu", is_async=True)
    run.bind()
    run.part(Updater).bind(run)
    batch = next(iter(run.task.train_loader))
    graph = StepGraph(run, run.part(Updater).update, (batch,), FakeContext())  # type: ignore[arg-type]
    graph.replay([tensor.detach() for tensor in batch])


def test_parameters_show_the_gradients_of_the_graph_that_was_replayed() -> None:
    run = prepared()
    graph, _ = captured(run)
    kept = [parameter.grad for parameter in run.model.parameters()]
    run.part(Updater).zero_grad()
    graph.show_gradients()
    assert [parameter.grad for parameter in run.model.parameters()] == kept
    assert kept[0] is not None


def test_the_run_finishes_batches_as_before_once_it_is_captured() -> None:
    run = prepared()
    finish = run.finish_batch
    captured(run)
    assert run.finish_batch == finish


def test_a_workshop_waits_for_the_work_before_and_after_a_warm_step(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    order: list[str] = []

    class Stream:
        def __init__(self, name: str) -> None:
            self.name = name

        def wait_stream(self, other: Stream) -> None:
            order.append(f"{self.name} waits for {other.name}")

    @contextmanager
    def use(stream: Stream) -> Iterator[None]:
        order.append(f"on {stream.name}")
        yield

    monkeypatch.setattr(capture, "capture_stream", lambda device: Stream("side"))
    monkeypatch.setattr(torch.cuda, "stream", use)
    monkeypatch.setattr(torch.cuda, "current_stream", lambda device: Stream("main"))
    monkeypatch.setattr(torch.cuda, "graph_pool_handle", lambda: (0, 0))
    context = capture.CaptureContext(torch.device("cpu"))
    context.warm_up(prepared(), lambda run, batches: order.append("step"), ())
    assert order == ["side waits for main", "on side", "step", "main waits for side"]
