"""Tests of runners and of their replaceable steps."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader

from engine.parts import Diary, Sums, adder, fit, make_run, numbers, weights
from epochal.engine import Monitor, Predict, Run, Runner, Test, Train
from epochal.engine.execute import describe_plan, execute
from epochal.errors import ConfigError, DataError, TaskError


def run_with(runner: Runner, run: Run) -> Any:
    return execute(run, runner, raise_errors=True)


def test_the_interface_itself_cannot_be_made() -> None:
    with pytest.raises(TypeError, match="abstract"):
        Runner()


def test_without_an_own_step_the_updater_is_called_directly() -> None:
    run = make_run()
    run.bind()
    Train().prepare(run)
    assert isinstance(run.take_step, partial)
    assert run.take_step.func == run.updater.update


def test_the_training_step_can_be_replaced_alone() -> None:
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
        outcome = run.calls.forward(batch)
        outcome.out = {"sum": batch[1] + 2}
        return outcome

    def predict_step(self, run: Run, batch: Any) -> str:
        return "seen"


def test_steps_of_evaluation_can_be_replaced_alone() -> None:
    run = make_run(for_="1ep", eval_every={"val": "1ep", "test": "1ep"})
    metrics = run_with(Shifted(), run).metrics
    assert metrics["val/mae"] == pytest.approx(1.0)
    assert metrics["test/mae"] == pytest.approx(2.0)


def test_the_test_step_is_the_evaluation_step_unless_replaced() -> None:
    class Own(Test):
        def eval_step(self, run: Run, batch: Any) -> dict[str, Any]:
            return {"sum": batch[1] + 1}

    assert run_with(Own(), make_run()).value == {"test/mae": pytest.approx(1.0)}


def test_the_step_of_prediction_can_be_replaced_alone() -> None:
    class Own(Predict):
        def predict_step(self, run: Run, batch: Any) -> str:
            return "seen"

    assert run_with(Own(), make_run()).value == ["seen", "seen"]


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


def test_a_runner_of_ones_own_does_what_it_likes() -> None:
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


def test_a_loader_without_persistent_workers_serves_training_and_evaluation() -> None:
    task = Sums()
    task.val_loader = task.train_loader
    assert run_with(Train(), make_run(task, for_="2ep", eval_every="2st")).steps == 10


@pytest.mark.parametrize(
    ("monitor", "options", "is_told"),
    [
        ("-val/mae", {"eval_every": 0}, True),
        ("-test/mae", {}, True),
        ("-val/mae", {"eval_every": 0, "eval_at_end": True}, False),
        ("-val/mae", {}, False),
        ("-train/mae", {"eval_every": 0}, False),
    ],
)
def test_a_monitor_that_nothing_measures_is_told_at_the_start(
    monitor: str, options: Any, is_told: bool, caplog: pytest.LogCaptureFixture
) -> None:
    parts = {"monitor": Monitor.parse(monitor)}
    run_with(Train(), make_run(for_="1ep", parts=parts, **options))
    assert (f"monitor: {monitor[1:]} is never measured" in caplog.text) is is_told


def test_a_plan_leaves_the_mode_of_the_model_alone() -> None:
    model = adder().eval()
    describe_plan(make_run(Sums(), model), Train())
    assert not any(module.training for module in model.modules())


def test_validation_is_left_out_where_there_is_no_loader_for_it() -> None:
    diary = Diary("eval_start")
    run_with(Train(), make_run(Sums(val=0), hooks=(diary,), for_="2ep", eval_at_end=True))
    assert diary.entries == []


def test_training_without_a_training_loader_is_refused_before_the_first_event_of_the_run() -> None:
    task, diary = Sums(), Diary("run_start")
    task.train_loader = None
    with pytest.raises(DataError, match="train_loader: the task has none"):
        run_with(Train(), make_run(task, hooks=(diary,)))
    assert diary.entries == []


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


def test_only_training_needs_an_optimizer() -> None:
    assert [kind.needs_optimizer for kind in (Train, Test, Predict)] == [True, False, False]


def test_a_training_with_own_optimizers_needs_none_of_the_run() -> None:
    model, usual = adder(), adder()
    run = make_run(Sums(), model, parts={"optimizer": None}, for_="2ep", log={"grad_norm": True})
    assert run_with(Alone(), run).steps == 10
    run_with(Train(), make_run(Sums(), usual, for_="2ep"))
    assert torch.equal(weights(model), weights(usual))


def test_a_training_that_takes_the_usual_steps_needs_an_optimizer_whatever_it_says() -> None:
    class Wrong(Train):
        needs_optimizer = False

    with pytest.raises(TaskError, match="optim: training needs an optimizer"):
        run_with(Wrong(), make_run(parts={"optimizer": None}))


def test_a_target_that_is_never_measured_is_warned_of(caplog: pytest.LogCaptureFixture) -> None:
    fit(make_run(for_="1ep", until="val/mae <= 0", eval_every=0))
    assert "train.until: val/mae is never measured" in caplog.text
    assert "it cannot end the run; set train.eval_every" in caplog.text
    caplog.clear()
    fit(make_run(for_="1ep", until="val/mae <= 0"))
    fit(make_run(for_="1ep", until="train/loss <= 0", eval_every=0))
    assert "never measured" not in caplog.text
