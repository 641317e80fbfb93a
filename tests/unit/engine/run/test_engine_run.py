"""Tests of the run that every hook receives."""

from __future__ import annotations

import dataclasses
import pickle
from typing import Any, ClassVar

import pytest
import torch
from torch import nn

from engine.parts import EventRecorder, Points, Sums, fit, make_run
from epochal.engine import Environment, Metric, Options, Parts, Run, RunResult
from epochal.engine.create_run import create_run
from epochal.errors import ConfigError, TaskError


def test_values_are_logged_at_the_current_step_by_default() -> None:
    points = Points()
    run = make_run(setting={"writer": points})
    run.step = 4
    run.log({"mine": torch.tensor(0.5, requires_grad=True)})
    run.log({"mine": 0.25}, step=9)
    assert points.points == [(4, {"mine": 0.5}), (9, {"mine": 0.25})]
    assert run.latest == {"mine": 0.25}


def test_a_function_can_be_attached_to_any_event() -> None:
    heard: list[str] = []
    run = make_run(for_="1ep")
    run.on("epoch_end", lambda split: heard.append(split))
    run.on("before_solve", lambda: heard.append("start"), priority=1)
    fit(run)
    assert heard == ["start", "train", "val"]


def test_an_attached_function_may_have_a_period() -> None:
    heard: list[int] = []
    run = make_run(for_="2ep")
    run.on("step_end", lambda run: heard.append(run.step), every="4st")
    fit(run)
    assert heard == [4, 8]


def test_a_function_attached_during_the_run_is_called_from_then_on() -> None:
    heard: list[int] = []
    run = make_run(for_="2ep")

    def attach(run: Run) -> None:
        if run.step == 3:
            run.on("step_end", lambda run: heard.append(run.step), every="2st")

    run.on("step_end", attach)
    fit(run)
    assert heard == [4, 6, 8, 10]


def test_changes_at_a_step_leave_its_evaluation_due() -> None:
    changes = (
        lambda run: run.on("step_end", lambda: None),
        lambda run: run.replace_task_method("batch_metric", lambda out, batch: {}),
        lambda run: run.bind(),
    )
    for change in changes:
        evaluated: list[int] = []
        run = make_run(for_="6st", eval_every="2st")
        run.on("step_end", lambda run, change=change: change(run) if run.step == 2 else None)
        run.on("eval_end", lambda run, evaluated=evaluated: evaluated.append(run.step))
        fit(run)
        assert evaluated == [2, 4, 6]


def test_binding_inside_step_end_calls_the_task_once() -> None:
    class Listening(Sums):
        def step_end(self, run: Run) -> None:
            heard.append(run.step)

    heard: list[int] = []
    run = make_run(Listening(), for_="3st")
    run.on("step_end", lambda run: run.bind(), priority=1)
    run.on("step_end", lambda run: run.bind(), priority=900)
    fit(run)
    assert heard == [1, 2, 3]


def test_the_epoch_number_counts_from_one() -> None:
    seen: list[tuple[str, int]] = []
    run = make_run(for_="2ep", eval_at_start=True)
    for event in ("epoch_start", "epoch_end", "eval_end"):
        run.on(
            event,
            lambda run, split, event=event: seen.append((f"{event} {split}", run.epoch_number)),
        )
    fit(run)
    assert [number for name, number in seen if name == "epoch_start train"] == [1, 2]
    assert [number for name, number in seen if name == "epoch_end train"] == [1, 2]
    assert [number for name, number in seen if name == "eval_end val"] == [0, 1, 2]


def test_methods_replaced_at_assembled_are_used_from_the_first_batch() -> None:
    run = make_run(for_="1ep", sanity_batches=0)

    def middleware(run: Run) -> None:
        forward = run.task.batch_forward
        run.task.batch_forward = lambda model, batch: {"sum": forward(model, batch)["sum"] * 0}

    run.on("assembled", middleware)
    run.on("setup", lambda run: setattr(run.task, "pre_batch_forward", note))
    seen: list[Any] = []

    def note(batch: Any) -> Any:
        seen.append(batch)
        return batch

    fit(run)
    assert len(seen) == 5 + 2


def test_a_method_replaced_during_the_run_is_used_from_the_next_batch() -> None:
    sizes: list[int] = []

    def pre(batch: Any) -> Any:
        sizes.append(run.step)
        return batch

    run = make_run(Sums(val=0), for_="1ep")
    run.on("step_end", lambda run: run.replace_task_method("pre_batch_forward", pre), every="3st")
    fit(run)
    assert sizes == [3, 4]


def test_an_event_method_of_the_task_can_be_replaced_too() -> None:
    heard: list[str] = []
    run = make_run(for_="1ep", sanity_batches=0)
    run.replace_task_method("epoch_end", lambda split: heard.append(split))
    fit(run)
    assert heard == ["train", "val"]


def test_a_replaced_task_brings_its_data_and_meta() -> None:
    losses: list[int] = []

    class Other(Sums):
        meta: ClassVar = {"classes": 3}

        def to(self, device: torch.device) -> None:
            self.device = device

        def batch_loss(self, out: Any, batch: Any) -> Any:
            losses.append(len(batch[1]))
            return super().batch_loss(out, batch)

    run = make_run(Sums(20), for_="1ep")
    other = Other(40)
    run.on("assembled", lambda run: setattr(run, "task", other))
    seen: list[object] = []
    run.on("run_start", lambda run: seen.append(run.meta))
    result = fit(run)
    assert (result.steps, result.samples) == (10, 40)
    assert losses == [4] * 10
    assert seen == [{"classes": 3}]
    assert other.device == torch.device("cpu")


class Count(Metric):
    on = ("train", "val")

    def __init__(self) -> None:
        self.batches = 0

    def reset(self) -> None:
        self.batches = 0

    def update(self, out: Any, batch: Any) -> None:
        self.batches += 1

    def compute(self) -> float:
        return self.batches


def test_a_metric_that_is_added_at_setup_measures_training_too() -> None:
    run = make_run(for_="1ep")
    run.on("setup", lambda run: run.metrics.update(count=Count()))
    metrics = fit(run).metrics
    assert (metrics["train/epoch/count"], metrics["val/count"]) == (5, 2)


def test_errors_in_the_meta_of_a_task_are_raised() -> None:
    class Lazy(Sums):
        @property
        def meta(self) -> dict[str, Any]:
            return {"classes": self.names}

    with pytest.raises(AttributeError, match="no attribute 'names'"):
        make_run(Lazy())


def test_replacing_an_unknown_method_is_refused_with_a_suggestion() -> None:
    with pytest.raises(TaskError, match=r"batch_fwd: .*\n  did you mean 'batch_forward'\?"):
        make_run().replace_task_method("batch_fwd", print)


def test_event_methods_of_the_task_come_before_hooks() -> None:
    class Listening(Sums):
        def run_start(self) -> None:
            recorder.entries.append("task")

    recorder = EventRecorder("run_start")
    fit(make_run(Listening(), hooks=(recorder,), for_="1st"))
    assert recorder.entries == ["task", "run_start"]


def test_modules_are_placed_on_device_and_dtype_of_the_run() -> None:
    run = make_run(setting={"dtype": "float64"})
    assert run.place(nn.Linear(1, 1)).weight.dtype == torch.float64
    with pytest.raises(ConfigError, match=r"model\.dtype: unknown dtype 'int8'"):
        make_run(setting={"dtype": "int8"})


def test_caches_for_checkpoints_are_merged() -> None:
    run = make_run()
    run.register_caches({"mean": 1.0})
    run.register_caches({"std": 2.0})
    assert run.caches == {"mean": 1.0, "std": 2.0}


def test_a_run_has_learning_rates_and_the_meta_of_the_task() -> None:
    task = Sums()
    task.meta["classes"] = ["a", "b"]
    run = make_run(task, lr=0.5)
    assert run.learning_rates == {"lr": 0.5}
    assert run.meta == {"classes": ["a", "b"]}


def test_a_run_cannot_be_pickled() -> None:
    with pytest.raises((TaskError, AttributeError, TypeError)):
        pickle.dumps(make_run())


def test_classes_instead_of_objects_are_refused() -> None:
    with pytest.raises(TaskError, match=r"task: is the class Sums, .*\n  create one: task=Sums\("):
        make_run(Sums)
    with pytest.raises(TaskError, match=r"model: is the class Linear, not an object"):
        create_run(Parts(task=Sums(), model=nn.Linear))


def test_parts_options_and_environment_are_frozen() -> None:
    for part in (Options(), Environment(), Parts(task=None, model=None)):
        with pytest.raises(dataclasses.FrozenInstanceError):
            setattr(part, dataclasses.fields(part)[0].name, None)


def test_only_finished_and_stopped_runs_are_ok() -> None:
    statuses = ("finished", "stopped", "failed", "interrupted")
    found = [RunResult(status=status, reason="any").ok for status in statuses]
    assert found == [True, True, False, False]
