"""Tests of evaluation and prediction."""

from __future__ import annotations

import gc
import random
import weakref
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader

import epochal as ep
from engine.parts import EventRecorder, Points, Sums, adder, fit, make_run, numbers, weights
from epochal.engine import Hook, Metric, Monitor, Predict, Run, Task, Test, Train
from epochal.engine.evaluate import check_sanity, evaluate, predict
from epochal.engine.execute import execute
from epochal.engine.measure.meter import Meter
from epochal.errors import DataError, TaskError
from epochal.hooks.console import Console
from epochal.hooks.early_stopping import EarlyStopping
from epochal.hooks.recording import Recording


def trained(task: Task | None = None, **options: Any) -> Tensor:
    model = adder(dropout=0.5)
    fit(make_run(task or Sums(), model, **{"for_": "2ep", **options}))
    return weights(model)


class Drawing(Hook):
    """Draws random numbers at the events of evaluations, as careless hooks do."""

    def eval_start(self, run: Run, split: str) -> None:
        _ = random.random(), np.random.random(), torch.rand(3)

    def eval_end(self, run: Run, split: str, metrics: dict[str, float]) -> None:
        _ = random.random(), np.random.random(), torch.rand(3)


def test_evaluations_never_change_training() -> None:
    expected = trained(eval_every=0)
    table: list[dict[str, Any]] = [
        {"eval_every": "1st"},
        {"eval_every": {"val": "2st", "test": "3st"}},
        {"eval_at_start": True, "eval_at_end": True, "eval_loss": True},
        {"sanity_batches": 0},
        {"eval_every": "1st", "hooks": (Drawing(),)},
    ]
    for options in table:
        assert torch.equal(trained(**options), expected), options


def test_a_shared_generator_of_loaders_does_not_change_training() -> None:
    def sharing() -> Sums:
        task, generator = Sums(), torch.Generator()
        for split, count in (("train", 20), ("val", 8)):
            loader = DataLoader(numbers(count), batch_size=4, shuffle=True, generator=generator)
            setattr(task, f"{split}_loader", loader)
        return task

    assert torch.equal(trained(sharing(), eval_every="1st"), trained(sharing(), eval_every=0))


def test_values_are_means_over_all_samples() -> None:
    run = make_run(Sums(val=7))
    features, sums = numbers(7, seed=1).tensors
    expected = (run.model(features) - sums).abs().mean().item()
    assert run.evaluate("val") == {"val/mae": pytest.approx(expected, rel=1e-6)}
    assert run.latest == {"val/mae": pytest.approx(expected, rel=1e-6)}


def test_several_loaders_have_their_names_in_the_metrics() -> None:
    task = Sums()
    task.val_loader = {"easy": task.val_loader, "hard": task.test_loader}
    run = make_run(task, hooks=(names := LoaderNames(),))
    assert set(run.evaluate("dev")) == {"val/easy/mae", "val/hard/mae"}
    assert names.heard == ["easy", "hard"]
    assert run.loader_name == ""


class LoaderNames(Hook):
    def __init__(self) -> None:
        self.heard: list[str] = []

    def loop_start(self, run: Run, split: str) -> None:
        self.heard.append(run.loader_name)


def test_a_loader_that_the_task_replaced_is_used_at_the_next_evaluation() -> None:
    task = Sums()
    run = make_run(task)
    first = run.evaluate()
    task.val_loader = task.test_loader
    assert run.evaluate() != first


def test_evaluation_events_come_in_order() -> None:
    recorder = EventRecorder()
    task = Sums(val=4)
    run = make_run(task, hooks=(recorder,), parts={"monitor": Monitor.parse("-val/mae")})
    run.evaluate()
    assert recorder.entries == [
        "eval_start val",
        "epoch_start val",
        "loop_start val",
        "batch_start val 0",
        "batch_end val 0",
        "loop_end val",
        "epoch_end val",
        "better_model",
        "eval_end val",
    ]


def test_points_are_recorded_at_the_current_step() -> None:
    points = Points()
    run = make_run(setting={"writer": points})
    run.step = 12
    metrics = run.evaluate("test")
    assert points.points == [(12, metrics)]
    assert run.evaluated_at == {"test": 12}


def test_training_modes_are_restored() -> None:
    model = adder(dropout=0.5)
    model[2].eval()
    seen: list[bool] = []
    run = make_run(Sums(), model)
    run.on("batch_end", lambda: seen.append(model.training))
    run.evaluate()
    assert seen == [False, False]
    assert model.training
    assert not model[2].training


class Modes(Sums):
    def batch_forward(self, model: nn.Module, batch: list[Tensor]) -> dict[str, Tensor]:
        self.meta["grad"] = torch.is_grad_enabled()
        return super().batch_forward(model, batch)


@pytest.mark.parametrize("needed", [False, True])
def test_gradients_are_enabled_only_if_the_task_needs_them(needed: bool) -> None:
    task = Modes()
    task.eval_needs_grad = needed
    run = make_run(task)
    run.evaluate()
    assert task.meta["grad"] is needed
    assert torch.is_grad_enabled()


def test_the_loss_of_an_evaluation_has_the_same_random_numbers_each_time() -> None:
    class Noisy(Sums):
        def batch_loss(self, out: Any, batch: Any) -> Any:
            return {"loss": (out["sum"].mean() + torch.rand(()), 4)}

    run = make_run(Noisy(), eval_loss=True)
    first = run.evaluate()
    torch.rand(5)
    assert run.evaluate() == first
    assert "val/loss" in first
    assert make_run(Noisy(), eval_loss=True, setting={"seed": 1}).evaluate() != first


def test_the_tasks_error_is_monitored_by_default() -> None:
    class Erring(Sums):
        def post_metric_to_err(self, result: dict[str, float]) -> float:
            return result["mae"] * 2

    task = Erring()
    result = fit(make_run(task, for_="2ep"))
    assert result.best == min(result.best, result.metrics["val/err"])
    assert result.metrics["val/err"] == 2 * result.metrics["val/mae"]
    task.val_loader = {"a": task.val_loader, "b": task.test_loader}
    run = make_run(task)
    run.bind()
    assert str(run.monitor) == "-val/a/err"


def test_a_metric_of_training_can_be_monitored() -> None:
    recorder = EventRecorder("better_model")
    parts = {"monitor": Monitor.parse("-train/loss")}
    result = fit(make_run(Sums(val=0), parts=parts, hooks=(recorder,), for_="2ep"))
    assert recorder.entries
    assert result.best is not None


def test_a_monitored_metric_that_does_not_exist_is_found_before_the_first_step() -> None:
    recorder = EventRecorder("step_end")
    parts = {"monitor": Monitor.parse("+val/mea")}
    with pytest.raises(TaskError) as caught:
        fit(make_run(parts=parts, hooks=(recorder,)))
    assert str(caught.value) == (
        "monitor: no metric is named 'val/mea'\n"
        "  evaluating val produced: val/mae\n"
        "  did you mean 'val/mae'?"
    )
    assert recorder.entries == []
    with pytest.raises(TaskError, match="no metric is named 'val/mea'"):
        fit(make_run(parts={"monitor": Monitor.parse("+val/mea")}, sanity_batches=0))


def test_a_monitor_of_several_loaders_must_name_one() -> None:
    task = Sums()
    task.val_loader = {"a": task.val_loader, "b": task.test_loader}
    text = "produced: val/a/mae, val/b/mae; each loader has its own metrics\n  did you mean"
    with pytest.raises(TaskError, match=text):
        fit(make_run(task, parts={"monitor": Monitor.parse("-val/mae")}))


def test_a_monitor_of_validation_needs_a_validation_loader() -> None:
    parts = {"monitor": Monitor.parse("+val/acc")}
    with pytest.raises(TaskError, match=r"monitor: '\+val/acc' needs a validation loader"):
        fit(make_run(Sums(val=0), parts=parts))


def test_a_training_whose_evaluations_would_never_end_takes_no_step() -> None:
    class Endless(Sums):
        def __init__(self) -> None:
            super().__init__(val=4)
            samples = [batch for batch in self.val_loader for _ in range(2)]
            chain = ep.data.chain(samples, ep.data.Repeat())
            self.val_loader = chain.loader(batch_size=None)

    run = make_run(Endless())
    with pytest.raises(DataError, match="val_loader: its data never end"):
        fit(run)
    assert run.step == 0
    for options in ({"limit_eval_batches": 3}, {"eval_every": 0}):
        run = make_run(Endless(), **options)
        fit(run)
        assert run.step > 0, options


def test_the_sanity_evaluation_has_no_side_effects() -> None:
    class Keeping(Sums):
        def batch_metric(self, out: Any, batch: Any) -> Any:
            from epochal.engine import current_run

            current_run().store.try_set("seen", True)
            _ = random.random(), np.random.random(), torch.rand(3)
            return super().batch_metric(out, batch)

    recorder, points = EventRecorder(), Points()
    run = make_run(
        Keeping(val=40),
        hooks=(recorder,),
        parts={"monitor": Monitor.parse("-val/mae")},
        setting={"writer": points},
    )
    state = torch.get_rng_state()
    from epochal.engine.run_context import making_current

    with making_current(run):
        check_sanity(run)
    assert torch.equal(torch.get_rng_state(), state)
    assert recorder.entries == points.points == []
    assert "seen" not in run.store
    assert run.latest == {}
    assert run.monitor.best is None


def test_a_validation_that_measures_nothing_says_how_to_change_that(
    caplog: pytest.LogCaptureFixture,
) -> None:
    class Unmeasured(Sums):
        batch_metric = None  # type: ignore[assignment]  # a task without metrics

    for train, says in (({}, True), ({"eval_loss": True}, False), ({"eval_every": 0}, False)):
        caplog.clear()
        with caplog.at_level("INFO"):
            check_sanity(make_run(Unmeasured(), **train))
        said = "val measures nothing: set train.eval_loss=true, or return metrics" in caplog.text
        assert said is says, train


class Buffering(Sums):
    """Prepares at one event what it needs at another, and leaves traces at a third."""

    def __init__(self) -> None:
        super().__init__()
        self.heard: list[str] = []

    def eval_start(self, split: str) -> None:
        self.heard.append(f"eval_start {split}")

    def epoch_start(self, split: str) -> None:
        self.heard.append(f"epoch_start {split}")
        self.buffer: list[Any] = []

    def loop_start(self, split: str) -> None:
        self.heard.append(f"loop_start {split}")

    def batch_end(self, out: Any) -> None:
        self.buffer.append(out)

    def epoch_metric(self, run: Run) -> dict[str, float]:
        return {"batches": len(self.buffer)}

    def eval_end(self, run: Run, metrics: dict[str, float]) -> None:
        self.heard.append("eval_end")
        run.log({"mine": metrics["val/batches"]})
        run.store.force_set("mine", 1)
        run.stop("enough")


def test_the_sanity_evaluation_fires_events_of_the_task_and_discards_their_effects() -> None:
    task, points = Buffering(), Points()
    run = make_run(task, setting={"writer": points})
    check_sanity(run)
    assert task.heard == ["eval_start val", "epoch_start val", "loop_start val", "eval_end"]
    assert (points.points, run.latest, run.stop_reason, run.stop_status) == ([], {}, "", "")
    assert "mine" not in run.store
    assert run.writer is points


def test_an_interrupt_in_the_sanity_evaluation_ends_the_run() -> None:
    task = Sums()
    task.batch_end = lambda run: run.stop("user_interrupt", status="interrupted")
    result = execute(make_run(task), Train())
    assert (result.status, result.steps, result.exit_code) == ("interrupted", 0, 130)


def test_an_error_in_the_sanity_evaluation_says_how_to_disable_it() -> None:
    task = Sums()
    task.batch_metric = lambda out, batch: 1 / 0
    with pytest.raises(ZeroDivisionError) as caught:
        check_sanity(make_run(task))
    assert "train.sanity_batches=0 disables it" in caught.value.__notes__[0]


def test_a_missing_or_empty_loader_is_named() -> None:
    with pytest.raises(DataError, match=r"val_loader: the task has none"):
        evaluate(make_run(Sums(val=0)), "val")
    task = Sums()
    task.val_loader = {"small": []}
    with pytest.raises(DataError, match=r"val_loader\['small'\]: gave no batch"):
        evaluate(make_run(task), "val")


def test_the_sums_of_an_evaluation_are_freed_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    meters = []

    def make_meter(device: torch.device) -> Meter:
        meter = Meter(device)
        meters.append(weakref.ref(meter))
        return meter

    monkeypatch.setattr("epochal.engine.evaluate.Meter", make_meter)
    run = make_run()
    gc.disable()
    try:
        evaluate(run, "val")
        assert [meter() for meter in meters] == [None]
    finally:
        gc.enable()


def test_limit_batches_applies_to_evaluations() -> None:
    recorder = EventRecorder("batch_end")
    make_run(Sums(val=40), hooks=(recorder,), limit_batches=2).evaluate()
    assert recorder.entries == ["batch_end val 0", "batch_end val 1"]


def test_limit_eval_batches_limits_evaluations_alone() -> None:
    recorder = EventRecorder("batch_end")
    options: dict[str, Any] = {"limit_eval_batches": 2, "for_": "1ep", "sanity_batches": 0}
    result = fit(make_run(Sums(val=40), hooks=(recorder,), **options))
    assert result.steps == 5
    assert [entry for entry in recorder.entries if "val" in entry] == [
        *["batch_end val 0", "batch_end val 1"]
    ]


class Predicting(Sums):
    def postprocess(self, out: dict[str, Tensor], batch: list[Tensor]) -> Tensor:
        return out["sum"].squeeze(1)


def test_a_prediction_collects_postprocessed_outputs() -> None:
    task = Predicting()
    task.predict_loader = DataLoader(numbers(6), batch_size=4)
    task.eval_needs_grad = True
    recorder = EventRecorder()
    run = make_run(task, hooks=(recorder,))
    outputs = predict(run)
    assert [len(part) for part in outputs] == [4, 2]
    assert not outputs[0].requires_grad
    assert recorder.entries[:2] == ["epoch_start predict", "loop_start predict"]
    assert recorder.entries[-2:] == ["loop_end predict", "epoch_end predict"]


def test_predictions_of_several_loaders_are_separate() -> None:
    task = Predicting()
    task.predict_loader = {"a": task.val_loader, "b": task.test_loader}
    outputs = execute(make_run(task), Predict()).value
    assert set(outputs) == {"a", "b"}


def test_a_prediction_falls_back_to_the_test_loader() -> None:
    assert len(predict(make_run(Sums()))) == 2


def test_a_first_interrupt_ends_an_evaluation_after_its_batch() -> None:
    recorder = EventRecorder("batch_end", "eval_end")
    run = make_run(Sums(val=40), hooks=(recorder,))
    run.on("batch_end", lambda run: run.stop("user_interrupt", status="interrupted"))
    result = execute(run, Test(split="val"))
    assert (result.status, result.exit_code) == ("interrupted", 130)
    assert recorder.entries == ["batch_end val 0"]


def test_an_interrupted_evaluation_is_dropped_and_training_ends() -> None:
    recorder = EventRecorder("step_end", "eval_end", "epoch_end", "stage_end", "error", "run_end")
    run = make_run(hooks=(recorder,), eval_every="2st", eval_at_end=True)
    run.on("on_validation_batch_end", lambda run: run.stop("user_interrupt", status="interrupted"))
    result = execute(run, Train())
    assert (result.status, result.reason, result.exit_code) == (
        "interrupted",
        "user_interrupt",
        130,
    )
    assert result.exception_type is None
    assert recorder.entries == ["step_end 1", "step_end 2", "run_end"], "what is due stays due"


def test_a_raised_keyboard_interrupt_ends_an_evaluation_at_once() -> None:
    def leave(run: Run) -> None:
        raise KeyboardInterrupt

    run = make_run()
    run.on("on_validation_batch_end", leave)
    result = execute(run, Train())
    assert (result.status, result.exception_type) == ("interrupted", "KeyboardInterrupt")


@pytest.mark.parametrize("moment", ["setup", "assembled", "run_start"])
def test_a_hook_may_evaluate_before_the_first_step(moment: str) -> None:
    seen: list[dict[str, float]] = []
    hooks = (Console(every=0), Recording(), EarlyStopping(patience=1))
    run = make_run(hooks=hooks, for_="1st", parts={"monitor": Monitor.parse("-val/mae")})
    run.on(moment, lambda run: seen.append(run.evaluate()), priority=1)
    assert fit(run).steps == 1
    assert set(seen[0]) == {"val/mae"}


class Mae(Metric):
    """Bears the name of something the task has."""

    on = ("train", "val")

    def reset(self) -> None: ...

    def update(self, out: Any, batch: Any) -> None: ...

    def compute(self) -> float:
        return 1.0


@pytest.mark.parametrize("options", [{}, {"sanity_batches": 0, "eval_every": 0}])
def test_a_metric_named_like_a_value_of_the_task_is_refused(options: Any) -> None:
    what = "metrics: 'mae' is the name of both a metric and a value of the task"
    with pytest.raises(TaskError, match=what):
        fit(make_run(parts={"metrics": {"mae": Mae()}}, for_="1ep", **options))


def test_a_metric_that_computes_no_number_is_named() -> None:
    what = r"metrics: Odd.compute: 'strange(/a)?' is .*, not a number\n  return a number"
    for value in (None, "high", {"a": None}, torch.ones(2)):

        class Odd(Mae):
            on = ("test",)

            def compute(self, value: Any = value) -> Any:
                return value

        with pytest.raises(TaskError, match=what):
            execute(make_run(parts={"metrics": {"strange": Odd()}}), Test(), raise_errors=True)


def test_an_evaluation_counts_as_user_code() -> None:
    run = make_run()
    run.events.has_run_user_code = False
    run.evaluate("val")
    assert run.events.has_run_user_code


def test_averages_are_those_of_the_epoch_or_the_evaluation_so_far() -> None:
    class Averages(Hook):
        def __init__(self) -> None:
            self.seen: dict[str, dict[str, float]] = {}
            self.rates: list[float] = []

        def batch_end(self, run: Run, split: str, index: int, batch: Any, out: Any) -> None:
            self.seen[split] = run.averages

        def step_end(self, run: Run) -> None:
            self.rates.append(run.learning_rates["lr"])

    hook = Averages()
    run = make_run(hooks=(hook,), for_="1ep")
    assert run.averages == {}
    result = execute(run, Train(), raise_errors=True)
    for name in ("loss", "mae"):
        assert hook.seen["train"][name] == result.metrics[f"train/epoch/{name}"], name
    assert hook.seen["val"]["mae"] == result.metrics["val/mae"]
    assert len(hook.rates) == result.steps


def test_a_run_of_steps_results_in_the_mean_of_its_last_evaluation_interval() -> None:
    class Counting(Sums):
        """The loss of step n is n."""

        def batch_loss(self, out: dict[str, Tensor], batch: list[Tensor]) -> dict[str, Any]:
            self.step = getattr(self, "step", 0) + 1
            return {"loss": (out["sum"].sum() * 0 + self.step, 4)}

    for options, expected in (
        ({"for_": "12st", "eval_every": "4st"}, {"train/interval/loss": 10.5}),
        ({"for_": "10st", "eval_every": "4st"}, {"train/interval/loss": 6.5}),
        ({"for_": "10st", "eval_every": 0}, {"train/interval/loss": 5.5}),
        ({"for_": "2ep", "eval_every": "4st"}, {"train/epoch/loss": 8.0}),
    ):
        result = fit(make_run(Counting(), **options))
        found = {name: one for name, one in result.metrics.items() if name.endswith("/loss")}
        assert found == expected, options
