"""Tests of one captured step; a fake of torch's graph runs the code once and replays nothing."""

from __future__ import annotations

import gc
import itertools
import weakref
from contextlib import contextmanager, suppress
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


class FakeContext:
    def record(self, graph: FakeCudaGraph, work: Any) -> None:
        work()


@pytest.fixture(autouse=True)
def fake_cuda(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "CUDAGraph", FakeCudaGraph)


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


class Stream:
    device = torch.device("cpu")
    device_index = 0

    def __init__(self, name: str, order: list[str]) -> None:
        self.name, self.order = name, order

    def wait_stream(self, other: Stream) -> None:
        self.order.append(f"{self.name} waits for {other.name}")


@pytest.fixture
def order(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What a context that captures on the stream "side" does to torch."""
    order: list[str] = []

    @contextmanager
    def use(stream: Stream) -> Iterator[None]:
        order.append(f"on {stream.name}")
        yield

    monkeypatch.setattr(capture, "capture_stream", lambda device: Stream("side", order))
    monkeypatch.setattr(torch.cuda, "stream", use)
    monkeypatch.setattr(torch.cuda, "current_stream", lambda device: Stream("main", order))
    monkeypatch.setattr(torch.cuda, "graph_pool_handle", lambda: (0, 7))
    return order


def test_a_warm_step_waits_for_the_work_before_and_the_work_after_waits_for_it(
    order: list[str],
) -> None:
    context = capture.CaptureContext(torch.device("cpu"))
    context.warm_up(prepared(), lambda run, batches: order.append("step"), ())
    assert order == ["side waits for main", "on side", "step", "main waits for side"]


@pytest.fixture
def failing(order: list[str], monkeypatch: pytest.MonkeyPatch) -> type:
    """A capture that ends with an error after one in it, as an invalid one does."""

    class Failing:
        has_ended = False

        def __init__(self, graph: Any, **options: Any) -> None:
            assert options["capture_error_mode"] == "thread_local"
            self.text = f"capture on {options['stream'].name} into {options['pool']}"

        def __enter__(self) -> None:
            order.append(self.text)

        def __exit__(self, kind: Any, *_: object) -> None:
            if kind is not None and not self.has_ended:
                raise RuntimeError("a previous error during capture")

    def end(device: int, pool: tuple[int, int]) -> None:
        if Failing.has_ended:
            raise RuntimeError("not currently recording to mempool_id")
        order.append(f"end {pool}")

    pools = itertools.count(10)
    monkeypatch.setattr(torch.cuda, "graph", Failing)
    monkeypatch.setattr(torch.cuda, "graph_pool_handle", lambda: (0, next(pools)))
    monkeypatch.setattr(torch.cuda, "set_stream", lambda stream: order.append(f"on {stream.name}"))
    monkeypatch.setattr(torch._C, "_cuda_endAllocateToPool", end)
    monkeypatch.setattr(
        torch._C, "_cuda_releasePool", lambda device, pool: order.append(f"release {pool}")
    )
    return Failing


class Value:
    pass


def test_a_failed_capture_gives_back_stream_memory_and_generator(
    order: list[str], failing: Any
) -> None:
    def fail() -> None:
        raise ValueError("in the step")

    for has_ended, memory in [(True, []), (False, ["end (0, 7)", "release (0, 7)"])]:
        order.clear()
        failing.has_ended = has_ended
        context = capture.CaptureContext(torch.device("cpu"))
        context.pool = (0, 7)
        with pytest.raises(ValueError if has_ended else RuntimeError):
            context.record(torch.cuda.CUDAGraph(), fail)
        # The second capture ends that of the generator.
        ends = [f"capture on side into {pool}" for pool in [(0, 7), context.pool]]
        assert order == [ends[0], "on main", *memory, ends[1]], has_ended
        assert context.pool != (0, 7)


def test_a_failed_capture_keeps_no_tensor_of_the_step_alive(failing: Any) -> None:
    alive: list[weakref.ref[Value]] = []

    def fail() -> None:
        value = Value()
        alive.append(weakref.ref(value))
        raise ValueError("in the step")

    context = capture.CaptureContext(torch.device("cpu"))
    gc.disable()
    try:
        with suppress(RuntimeError):
            context.record(torch.cuda.CUDAGraph(), fail)
        assert alive[0]() is None
    finally:
        gc.enable()
