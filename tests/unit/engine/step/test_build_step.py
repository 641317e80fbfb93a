"""Tests of what a step is made of."""

from __future__ import annotations

from typing import Any

from engine.parts import EventRecorder, Sums, fit, make_run
from epochal.engine import Metric, Run, Schedule, Train
from epochal.engine.execute import execute
from epochal.engine.step.build_step import BatchFunctions


def test_batch_hooks_are_called_for_each_microbatch() -> None:
    recorder = EventRecorder("batch_start", "batch_end", "step_end")
    recorder.on = ("train",)
    fit(make_run(hooks=(recorder,), for_="1ep", optim={"accumulate": 3}))
    assert recorder.entries == [
        *[f"batch_{moment} train {index}" for index in (0, 1, 2) for moment in ("start", "end")],
        "step_end 1",
        *[f"batch_{moment} train {index}" for index in (3, 4) for moment in ("start", "end")],
        "step_end 2",
    ]


def test_a_function_attached_during_the_run_is_called_from_the_next_batch() -> None:
    heard: list[int] = []
    run = make_run(for_="1ep")

    def attach(run: object) -> None:
        run.on("onTrainBatchStart", lambda index: heard.append(index))

    run.on("step_end", attach, every="3st")
    fit(run)
    assert heard == [3, 4]


class Halving(Schedule):
    def factor(self, step: int, total_steps: int | None) -> float:
        return 0.5**step


def test_a_custom_train_step_uses_the_schedule() -> None:
    class Own(Train):
        def train_step(self, run: Run, microbatches: Any) -> None:
            for batch in microbatches:
                run.finish_batch(run.train_batch(batch))

    rates: list[float] = []
    run = make_run(parts={"schedule": Halving()}, for_="3st", eval_every=0)
    run.on("step_end", lambda run: rates.append(run.learning_rates["lr"]))
    execute(run, Own(), raise_errors=True)
    assert rates == [0.05, 0.025, 0.0125]


class Seen(Metric):
    on = ("train",)

    def reset(self) -> None:
        self.count = 0

    def update(self, out: Any, batch: Any) -> None:
        self.count += 1

    def compute(self) -> float:
        return float(self.count)


def test_finishing_a_batch_reports_it_and_updates_metrics() -> None:
    metric = Seen()
    metric.reset()
    run = make_run(parts={"metrics": {"seen": metric}})
    window = run.meter.window()
    outcome = run.train_batch(next(iter(run.task.train_loader)))
    run.part(BatchFunctions).report(outcome)
    assert window.read().keys() == {"loss", "mae"}
    assert metric.count == 0
    run.part(BatchFunctions).measure(outcome)
    assert metric.count == 1
    assert window.read() == {}
    run.finish_batch(outcome)
    assert window.read().keys() == {"loss", "mae"}
    assert metric.count == 2


def test_metrics_that_a_runner_adds_to_an_outcome_count() -> None:
    class Bare(Sums):
        batch_metric = None

    run = make_run(Bare())
    window = run.meter.window()
    outcome = run.train_batch(next(iter(run.task.train_loader)))
    outcome.metrics = {"own": (2.0, 1)}
    run.finish_batch(outcome)
    assert window.read()["own"] == 2.0
