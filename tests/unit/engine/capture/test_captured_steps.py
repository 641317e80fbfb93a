"""Tests of when steps are captured, with a fake graph that takes eager steps."""

from __future__ import annotations

import logging
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils.data import DataLoader

from engine.parts import Sums, Witness, adder, fit, make_run, numbers, weights
from epochal.components.schedules import Cosine
from epochal.data.datasets import Tensors
from epochal.engine import Hook, Run, Warmup
from epochal.engine.capture import captured_steps as captured
from epochal.engine.capture import captured_steps as choose
from epochal.engine.capture.batch_layout import map_tensors


class FakeGraph:
    """Keeps inputs like a graph; its replay is an eager step on them."""

    captures = 0
    replays = 0
    copies = 0
    error: Exception | None = None
    shown = 0
    """Replays before which gradients were those of the graph."""

    def __init__(self, run: Run, update: Any, microbatches: Any, context: Any) -> None:
        if FakeGraph.error is not None:
            raise FakeGraph.error
        FakeGraph.captures += 1
        self._run, self._update = run, update
        self._inputs, self.inputs = map_tensors(microbatches, torch.clone)

    def replay(self, tensors: list[Tensor]) -> None:
        FakeGraph.replays += 1
        FakeGraph.copies += tensors[0] is not self.inputs[0]
        for target, source in zip(self.inputs, tensors, strict=True):
            target.copy_(source)
        self._update(self._run, self._inputs)

    def show_gradients(self) -> None:
        if not FakeGraph.shown:
            FakeGraph.shown = FakeGraph.replays


class FakeContext:
    def __init__(self, device: torch.device) -> None:
        pass

    def warm_up(self, run: Run, update: Any, microbatches: Any) -> None:
        update(run, microbatches)


@pytest.fixture(autouse=True)
def fake_device(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(captured, "StepGraph", FakeGraph)
    monkeypatch.setattr(captured, "CaptureContext", FakeContext)
    for module in (captured, choose):
        monkeypatch.setattr(module, "find_capture_obstacle", lambda run: "")
    FakeGraph.captures = FakeGraph.replays = FakeGraph.copies = FakeGraph.shown = 0
    FakeGraph.error = None


def trained(task: Sums | None = None, *hooks: Hook, step: str = "graph", **options: Any) -> Any:
    witness, model = Witness(), adder()
    engine = {"step": step} | options.pop("engine", {})
    options = {"for_": "6ep", "eval_every": 0} | options
    run = make_run(task or Sums(20), model, hooks=(witness, *hooks), engine=engine, **options)
    result = fit(run)
    return result, weights(model), witness.choices


def test_three_steps_are_eager_and_the_rest_are_replayed() -> None:
    result, _, choices = trained()
    assert FakeGraph.captures == 1
    assert FakeGraph.replays == result.steps - 3 + 3  # three of them in the trial
    assert choices["step"] == "graph"


def test_gradients_of_a_graph_are_shown_before_its_first_step() -> None:
    trained()
    assert FakeGraph.shown == 3  # replays of the trial


def test_replayed_steps_train_like_eager_ones() -> None:
    eager, captured_ = trained(step="eager"), trained()
    assert torch.equal(eager[1], captured_[1])
    assert eager[0].metrics == captured_[0].metrics


@pytest.mark.parametrize(
    "make",
    [
        lambda one: Warmup(Cosine(restarts=1), 5),
        lambda one: Warmup(torch.optim.lr_scheduler.ExponentialLR(one, 0.9), "1ep"),
    ],
)
def test_a_rate_that_moves_needs_no_new_capture(make: Any) -> None:
    def run(step: str) -> Tensor:
        witness, model = Witness(), adder()
        optimizer = torch.optim.SGD(model.parameters(), lr=torch.tensor(0.1))
        parts = {"optimizer": optimizer, "schedule": make(optimizer)}
        options = {"for_": "6ep", "eval_every": 0, "engine": {"step": step}, "parts": parts}
        fit(make_run(Sums(20), model, hooks=(witness,), **options))
        return weights(model)

    assert torch.equal(run("eager"), run("graph"))
    assert FakeGraph.captures == 1


def test_each_repeated_shape_gets_a_graph() -> None:
    _, expected, _ = trained(Sums(22), step="eager")
    _, ended, _ = trained(Sums(22))  # the last batch of an epoch has 2
    assert FakeGraph.captures == 2
    assert torch.equal(ended, expected)


class Changing(Sums):
    def __init__(self) -> None:
        super().__init__()
        sampler = [list(range(size)) for size in range(1, 80)]
        self.train_loader = DataLoader(numbers(100), batch_sampler=sampler)


def test_data_on_the_device_are_gathered_into_the_inputs_of_the_graph() -> None:
    class Resident(Sums):
        def __init__(self) -> None:
            super().__init__()
            tensors = Tensors(*numbers(22).tensors, resident=True)
            self.train_loader = tensors.loader(batch_size=4, shuffle=True)

    _, expected, _ = trained(Resident(), step="eager")
    result, ended, _ = trained(Resident())
    assert torch.equal(ended, expected)
    assert result.steps == 36
    # Three batches of the first trial, the one in hand, and all of the short last batches.
    assert FakeGraph.copies == 3 + 1 + 3 + 3


def test_shapes_that_never_repeat_are_given_up(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    _, _, choices = trained(Changing(), for_="1ep")
    assert FakeGraph.captures == 0
    assert choices["step"] == "eager"
    assert "step: eager: shapes of batches do not repeat: 64 in 64 steps" in caplog.text


def test_a_batch_whose_inside_cannot_be_seen_is_left_to_eager_steps(
    caplog: pytest.LogCaptureFixture,
) -> None:
    class Opaque(list):  # type: ignore[type-arg]
        pass

    class Handle:
        def __init__(self, pair: list[Tensor]) -> None:
            self.pair = pair

    class Wrapped(Sums):
        def __init__(self) -> None:
            super().__init__()
            batches = Opaque(Handle(batch) for batch in self.train_loader)
            self.train_loader = batches  # type: ignore[assignment]

        def pre_batch_forward(self, batch: Any) -> Any:
            return batch.pair if isinstance(batch, Handle) else batch

    caplog.set_level(logging.INFO)
    _, _, choices = trained(Wrapped())
    assert choices["step"] == "eager"
    assert "a batch holds a" in caplog.text
    assert "Handle" in caplog.text


def test_a_failed_capture_is_explained_and_costs_nothing(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    _, expected, _ = trained(step="eager")
    FakeGraph.error = RuntimeError("operation not permitted\nmore lines")
    _, ended, choices = trained()
    assert torch.equal(ended, expected)
    assert choices["step"] == "eager"
    assert "step: eager: operation not permitted (" in caplog.text
    assert "more lines" not in caplog.text


def test_the_first_error_of_a_failed_capture_is_the_one_explained(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO)
    FakeGraph.error = RuntimeError("operation failed due to a previous error during capture")
    FakeGraph.error.__context__ = RuntimeError("called a synchronizing CUDA operation")
    trained()
    assert "step: eager: a part of the model or of torch itself reads a value" in caplog.text


def test_too_little_memory_for_a_graph_is_said_plainly(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    FakeGraph.error = torch.OutOfMemoryError("CUDA out of memory. Tried to allocate ...")
    trained()
    assert "step: eager: there is not enough memory for it" in caplog.text


class Doubling(Hook):
    """Changes what the step reads, after some epochs."""

    def epoch_end(self, run: Run, split: str) -> None:
        run.task.factor = run.epoch // 3


class Factored(Sums):
    factor = 0
    score = 0.0

    def batch_loss(self, out: Any, batch: Any) -> dict[str, Any]:
        loss, count = super().batch_loss(out, batch)["loss"]
        return {"loss": (loss * (1 + self.factor), count)}


def test_a_change_of_what_the_step_reads_leads_to_a_new_capture(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO)
    _, expected, _ = trained(Factored(), Doubling(), step="eager")
    _, ended, _ = trained(Factored(), Doubling())
    assert FakeGraph.captures == 2
    assert "step: captured again, since Factored.factor changed" in caplog.text
    assert torch.equal(ended, expected)


def test_a_change_of_what_no_step_reads_keeps_the_graph() -> None:
    class Scoring(Hook):
        def epoch_end(self, run: Run, split: str) -> None:
            run.task.score = float(run.epoch)

    trained(Factored(), Scoring())
    assert FakeGraph.captures == 1


def test_a_replaced_method_leads_to_a_new_capture(caplog: pytest.LogCaptureFixture) -> None:
    class Replacing(Hook):
        def epoch_end(self, run: Run, split: str) -> None:
            if run.epoch == 2:
                run.replace_task_method("post_batch_forward", lambda out, batch: out)

    caplog.set_level(logging.INFO)
    trained(None, Replacing())
    assert FakeGraph.captures == 2
    assert "since a method of the task changed" in caplog.text


def test_steps_stay_eager_after_too_many_captures(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Restless(Hook):
        def epoch_end(self, run: Run, split: str) -> None:
            run.task.factor = run.epoch

    monkeypatch.setattr(captured, "MAX_CAPTURES", 2)
    caplog.set_level(logging.INFO)
    _, _, choices = trained(Factored(), Restless())
    assert choices["step"] == "eager"
    assert "step: eager: Factored.factor keeps changing: captured 2 times" in caplog.text


def test_a_schedule_that_moves_more_than_the_rate_is_refused(
    caplog: pytest.LogCaptureFixture,
) -> None:
    class Fading(Hook):
        """Stands for a scheduler that moves the momentum after each step."""

        def run_start(self, run: Run) -> None:
            groups = run.optimizer.param_groups
            take_step = run.take_step

            def take_and_fade(microbatches: Any) -> None:
                take_step(microbatches)
                groups[0]["weight_decay"] += 0.01

            run.take_step = take_and_fade

    caplog.set_level(logging.INFO)
    _, _, choices = trained(None, Fading())
    assert choices["step"] == "eager"
    assert "optim.0.weight_decay changes with the steps" in caplog.text


def test_an_obstacle_that_comes_later_ends_the_captured_steps(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    class Late(Hook):
        def epoch_end(self, run: Run, split: str) -> None:
            monkeypatch.setattr(captured, "find_capture_obstacle", lambda run: "a hook acts in it")

    caplog.set_level(logging.INFO)
    _, _, choices = trained(None, Late())
    assert choices == {"step": "eager", "step_reason": "a hook acts in it"}
    assert "step: eager: a hook acts in it" in caplog.text


def test_compiled_steps_are_compared_within_a_tolerance() -> None:
    _, expected, _ = trained(step="eager")
    _, ended, choices = trained(step="compile", engine={"compile_backend": "eager"})
    assert choices["step"] == "compile"
    torch.testing.assert_close(ended, expected)


def test_the_step_that_is_chosen_is_said_once(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    trained(Sums(22), step="auto")
    said = [r.getMessage() for r in caplog.records if r.getMessage().startswith("step: ")]
    assert len(said) == 1
    assert said[0].startswith("step: captured, equal to eager steps bit for bit (")


class InTurn(Sums):
    """Batches of so many sizes, one after the other, and again."""

    def __init__(self, sizes: int) -> None:
        super().__init__()
        sampler = [list(range(size)) for size in range(1, sizes + 1)]
        self.train_loader = DataLoader(numbers(100), batch_sampler=sampler)


def test_only_a_few_shapes_get_graphs() -> None:
    _, expected, _ = trained(InTurn(10), step="eager", for_="12ep")
    _, ended, choices = trained(InTurn(10), for_="12ep")
    assert FakeGraph.captures == captured.MAX_GRAPHS
    assert choices["step"] == "graph"
    assert torch.equal(ended, expected)


def test_reads_of_all_shapes_count(caplog: pytest.LogCaptureFixture) -> None:
    class Either(Factored):
        other = 0

        def batch_loss(self, out: Any, batch: Any) -> dict[str, Any]:
            loss, count = Sums.batch_loss(self, out, batch)["loss"]
            return {"loss": (loss * (1 + (self.factor if count == 4 else self.other)), count)}

    caplog.set_level(logging.INFO)
    trained(Either(22), Doubling())  # the short batches are captured last
    assert "step: captured again, since Either.factor changed" in caplog.text


def test_many_captures_are_fine_in_a_long_run(monkeypatch: pytest.MonkeyPatch) -> None:
    class Restless(Hook):
        def epoch_end(self, run: Run, split: str) -> None:
            run.task.factor = run.epoch

    monkeypatch.setattr(captured, "MAX_CAPTURES", 2)
    _, _, choices = trained(Factored(100), Restless())  # 25 steps each
    assert choices["step"] == "graph"


def test_batches_of_a_trial_are_those_that_came(monkeypatch: pytest.MonkeyPatch) -> None:
    class Refilling:
        """Gives the same tensors again and again, with other numbers."""

        def __init__(self) -> None:
            self.x, self.y = torch.zeros(4, 3), torch.zeros(4, 1)

        def __len__(self) -> int:
            return 5

        def __iter__(self) -> Any:
            for number in range(5):
                self.x.fill_(number)
                self.y.fill_(3 * number)
                yield [self.x, self.y]

    class Reused(Sums):
        def __init__(self) -> None:
            super().__init__()
            self.train_loader = Refilling()  # type: ignore[assignment]

    seen: list[float] = []
    judge = captured.CaptureTrial.compare

    def judging(self: Any, *args: Any, **options: Any) -> str:
        seen.extend([float(batch[0][0][0, 0]) for batch in self._batches])
        return judge(self, *args, **options)

    monkeypatch.setattr(captured.CaptureTrial, "compare", judging)
    trained(Reused())
    assert seen == [0.0, 1.0, 2.0]


def test_a_compiled_step_that_fails_is_captured_plainly(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(run: Run, **_: Any) -> Any:
        raise RuntimeError("no compiler here")

    class Switching(Hook):
        def epoch_end(self, run: Run, split: str) -> None:
            if split == "train" and run.epoch == 1:
                run.take_step._switch(True)  # type: ignore[attr-defined]

    monkeypatch.setattr(captured, "compile_forward_and_loss", fail)
    caplog.set_level(logging.INFO)
    _, _, choices = trained(None, Switching(), step="auto")
    assert "step: not compiled: no compiler here" in caplog.text
    assert choices["step"] == "graph"
