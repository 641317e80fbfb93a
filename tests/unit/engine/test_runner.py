"""Tests of runners and of their replaceable steps."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader

from engine.parts import EventRecorder, Sums, adder, make_run, numbers, weights
from epochal.engine import Monitor, Predict, Run, Runner, Test, Train
from epochal.engine.execute import execute
from epochal.engine.step.task_calls import TaskCalls
from epochal.errors import ConfigError, DataError, TaskError
from epochal.hooks.early_stopping import EarlyStopping
from epochal.hooks.mixing import CutMix, Mixup
from epochal.hooks.profiler import Profiler
from epochal.hooks.safetensors_export import FinalWeights, SafetensorsExport


def run_with(runner: Runner, run: Run) -> Any:
    return execute(run, runner, raise_errors=True)


def test_the_interface_cannot_be_instantiated() -> None:
    with pytest.raises(TypeError, match="abstract"):
        Runner()


def test_the_training_step_can_be_overridden() -> None:
    class Careful(Train):
        taken = 0

        def train_step(self, run: Run, microbatches: tuple[Any, ...]) -> None:
            self.taken += 1
            super().train_step(run, microbatches)

    model, plain = adder(), adder()
    runner = Careful()
    run_with(runner, make_run(Sums(), model, for_="2ep"))
    run_with(Train(), make_run(Sums(), plain, for_="2ep"))
    assert runner.taken == 10
    assert torch.equal(weights(model), weights(plain))


class Shifted(Train):
    """Evaluates its own way: plain outputs in validation, the usual ones changed in test."""

    def eval_step(self, run: Run, batch: Any) -> dict[str, Any]:
        return {"sum": batch[1] + 1}

    def test_step(self, run: Run, batch: Any) -> Any:
        outcome = run.part(TaskCalls).forward(batch)
        outcome.out = {"sum": batch[1] + 2}
        return outcome

    def predict_step(self, run: Run, batch: Any) -> str:
        return "seen"


def test_evaluation_steps_can_be_overridden() -> None:
    run = make_run(for_="1ep", eval_every={"val": "1ep", "test": "1ep"})
    metrics = run_with(Shifted(), run).metrics
    assert metrics["val/mae"] == pytest.approx(1.0)
    assert metrics["test/mae"] == pytest.approx(2.0)


def test_test_and_prediction_steps_can_be_overridden() -> None:
    class Own(Test):
        def eval_step(self, run: Run, batch: Any) -> dict[str, Any]:
            return {"sum": batch[1] + 1}

    assert run_with(Own(), make_run()).value == {"test/mae": pytest.approx(1.0)}

    class Seen(Predict):
        def predict_step(self, run: Run, batch: Any) -> str:
            return "seen"

    assert run_with(Seen(), make_run()).value == ["seen", "seen"]


def test_testing_needs_neither_optimizer_nor_schedule_nor_training_data() -> None:
    task = Sums()
    task.train_loader = None
    result = run_with(Test(), make_run(task, parts={"optimizer": None}))
    assert (result.status, result.reason, result.steps) == ("finished", "completed", 0)
    assert set(result.metrics) == {"test/mae"}
    assert result.value == result.metrics


def test_another_split_can_be_tested() -> None:
    assert set(run_with(Test(split="dev"), make_run()).value) == {"val/mae"}
    with pytest.raises(ConfigError, match="unknown split"):
        Test(split="tset")


def test_a_custom_runner_can_evaluate() -> None:
    class Twice(Runner):
        def run(self, run: Run) -> str:
            first, second = run.evaluate("val"), run.evaluate("val")
            return "same" if first == second else "different"

    assert run_with(Twice(), make_run()).value == "same"


def test_a_split_that_was_asked_for_must_have_a_loader() -> None:
    task = Sums()
    task.test_loader = None
    with pytest.raises(DataError, match="test_loader: the task has none"):
        run_with(Train(), make_run(task, eval_every={"test": "1ep"}))


@pytest.mark.parametrize("split", ["val", "test"])
def test_training_and_evaluation_cannot_share_a_loader_with_persistent_workers(split: str) -> None:
    task = Sums()
    task.train_loader = DataLoader(numbers(8), num_workers=1, persistent_workers=True)
    setattr(task, f"{split}_loader", {"same": task.train_loader})
    with pytest.raises(DataError, match=f"{split}_loader: is the train_loader itself"):
        run_with(Train(), make_run(task, eval_every={"test": "1ep"}))


def test_a_monitor_or_target_that_is_never_measured_is_warned_of(
    caplog: pytest.LogCaptureFixture,
) -> None:
    table: list[tuple[str, dict[str, Any], bool]] = [
        ("-val/mae", {"eval_every": 0}, True),
        ("-test/mae", {}, True),
        ("-val/mae", {"eval_every": 0, "eval_at_end": True}, False),
        ("-val/mae", {}, False),
        ("-val/mae", {"eval_every": "2ep"}, True),
        ("-val/mae", {"eval_every": "2ep", "eval_at_end": True}, False),
        ("-val/mae", {"eval_every": "1ep"}, False),
        ("-train/mae", {"eval_every": 0}, False),
    ]
    for monitor, options, is_warned in table:
        caplog.clear()
        metric = monitor[1:]
        parts = {"monitor": Monitor.parse(monitor)}
        run_with(Train(), make_run(for_="1ep", parts=parts, until=f"{metric} <= 0", **options))
        assert (f"monitor: {metric} is never measured" in caplog.text) is is_warned, options
        target = f"train.until: {metric} is never measured"
        assert (target in caplog.text) is is_warned, options
        assert ("it cannot end the run; set train.eval_every" in caplog.text) is is_warned


def test_validation_is_skipped_without_a_loader() -> None:
    recorder = EventRecorder("eval_start")
    run_with(Train(), make_run(Sums(val=0), hooks=(recorder,), for_="2ep", eval_at_end=True))
    assert recorder.entries == []


def test_training_without_a_training_loader_is_refused_before_the_first_event_of_the_run() -> None:
    task, recorder = Sums(), EventRecorder("run_start")
    task.train_loader = None
    with pytest.raises(DataError, match="train_loader: the task has none"):
        run_with(Train(), make_run(task, hooks=(recorder,)))
    assert recorder.entries == []


class Alone(Train):
    """Has an optimizer of its own."""

    needs_optimizer = False

    def train_step(self, run: Run, microbatches: tuple[Any, ...]) -> None:
        optimizer = torch.optim.SGD(run.model.parameters(), lr=0.1)
        for batch in microbatches:
            outcome = run.train_batch(batch)
            optimizer.zero_grad()
            outcome.loss.backward()
            optimizer.step()
            run.finish_batch(outcome)


def test_a_runner_with_its_own_optimizers_needs_none_of_the_run() -> None:
    model, usual = adder(), adder()
    run = make_run(Sums(), model, parts={"optimizer": None}, for_="2ep", log={"grad_norm": True})
    assert run_with(Alone(), run).steps == 10
    run_with(Train(), make_run(Sums(), usual, for_="2ep"))
    assert torch.equal(weights(model), weights(usual))


def test_the_usual_step_always_needs_an_optimizer() -> None:
    class Wrong(Train):
        needs_optimizer = False

    with pytest.raises(TaskError, match="optim: training needs an optimizer"):
        run_with(Wrong(), make_run(parts={"optimizer": None}))


def test_hooks_act_only_under_the_runners_that_they_name() -> None:
    class Training(EventRecorder):
        runners = ("train",)

    class Evaluating(EventRecorder):
        runners = ("test", "predict")

    class Restore(Train):
        kind = "test"

    task = Sums()
    task.predict_loader = task.test_loader
    for runner, acting in (
        (Train(), (True, False, True)),
        (Test(), (False, True, True)),
        (Predict(), (False, True, True)),
        (Restore(), (False, True, True)),
    ):
        hooks = (Training(), Evaluating(), EventRecorder())
        execute(make_run(task, hooks=hooks, for_="1st"), runner, raise_errors=True)
        assert tuple(bool(hook.entries) for hook in hooks) == acting, runner
        assert hooks[2].entries[-1] == "teardown"


def test_training_hooks_do_not_run_in_tests_and_predictions() -> None:
    for kind in (EarlyStopping, Mixup, CutMix, Profiler, SafetensorsExport, FinalWeights):
        assert kind.runners == ("train",), kind
    task = Sums()
    task.predict_loader = task.test_loader
    for runner in (Test(), Predict()):  # without a monitor, and without known classes
        hooks = (EarlyStopping(patience=1, upper_bound=0), Mixup())
        result = execute(make_run(task, hooks=hooks), runner, raise_errors=True)
        assert result.reason == "completed"
