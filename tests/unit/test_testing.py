"""Tests of ``epochal.testing``: the conformance suites, and the small parts for tests."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import torch

from epochal.engine.interfaces.hook import Hook
from epochal.engine.run.engine_run import Environment
from epochal.hooks.recording import Recording
from epochal.testing import (
    EventRecorder,
    HookConformance,
    InjectedError,
    MemoryRecord,
    TaskConformance,
    TinyModel,
    TinyTask,
    execute_run,
    short_options,
    tiny_run,
)

if TYPE_CHECKING:
    from torch import nn

    from epochal.engine.run.engine_run import EngineRun


def hook_suite(hook: type[Hook]) -> HookConformance:
    suite = HookConformance()
    suite.make = hook  # type: ignore[method-assign]  # as a subclass would
    return suite


def task_suite(task: type[TinyTask], model: type[nn.Module] = TinyModel) -> TaskConformance:
    def make_model() -> nn.Module:
        torch.manual_seed(0)
        return model()

    suite = TaskConformance()
    suite.make_task, suite.make_model = task, make_model  # type: ignore[method-assign]  # same
    return suite


def test_event_recorder_records_all_events_in_order() -> None:
    recorder = EventRecorder()
    options = short_options(for_="1ep", limit_batches=1, sanity_batches=0)
    execute_run(tiny_run(recorder, options=options, monitor="+val/acc"))
    assert recorder.entries == [
        "setup",
        "assembled",
        "run_start",
        "stage_start",
        "epoch_start train",
        "loop_start train",
        "batch_start train",
        "batch_end train",
        "step_end",
        "loop_end train",
        "epoch_end train",
        "eval_start val",
        "epoch_start val",
        "loop_start val",
        "batch_start val",
        "batch_end val",
        "loop_end val",
        "epoch_end val",
        "better_model",
        "eval_end val",
        "stage_end",
        "run_end",
        "teardown",
    ]


def test_event_recorder_records_only_the_given_events() -> None:
    recorder = EventRecorder("step_end", "run_end")
    execute_run(tiny_run(recorder, options=short_options(for_="2st")))
    assert recorder.entries == ["step_end", "step_end", "run_end"]


def test_memory_record_stores_points_events_and_statuses() -> None:
    memory_record = MemoryRecord()
    memory_record.log({"a": 1.0}, 3)
    memory_record.log({"a": 2.0, "b": 5.0}, 4)
    memory_record.event("started", step=0)
    memory_record.write_status("running", step=1)
    assert memory_record.series("a") == {3: 1.0, 4: 2.0}
    assert memory_record.series("b") == {4: 5.0}
    assert memory_record.events == [("started", {"step": 0})]
    assert memory_record.statuses == [("running", {"step": 1})]


def test_memory_record_accepts_all_that_a_run_writes() -> None:
    memory_record = MemoryRecord()
    run = tiny_run(
        Recording(),
        options=short_options(for_="2st"),
        setting=Environment(writer=memory_record, tag="tiny"),
    )
    saved: list[object] = []
    run.on("run_end", lambda: saved.append(run.save_media("note", "text", kind="text")))
    execute_run(run)
    assert saved == [None]
    assert memory_record.num_points == sum(len(points) for _, points in memory_record.points) > 0


def test_the_tiny_model_learns_the_tiny_task() -> None:
    result = execute_run(tiny_run(options=short_options(for_="40ep"), model=TinyModel(dropout=0.0)))
    assert result.metrics["val/acc"] > 0.8
    assert result.steps == 40 * 6


def test_suites_name_the_methods_to_define() -> None:
    with pytest.raises(NotImplementedError, match="define make"):
        HookConformance().test_it_works_with_every_runner()
    with pytest.raises(NotImplementedError, match="define make_task"):
        TaskConformance().test_the_same_seed_trains_the_same_weights()
    with pytest.raises(NotImplementedError, match="define make_model"):
        TaskConformance().test_it_trains()


class Random(Hook):
    def epoch_end(self, run: EngineRun, split: str, metrics: dict[str, float]) -> None:
        torch.rand(1)


class Stopper(Hook):
    def step_end(self, run: EngineRun) -> None:
        run.stop("enough")


class Masking(Hook):
    def error(self, run: EngineRun, error: BaseException) -> None:
        run.events.clear()
        raise SystemExit(3)


class Unstable(Hook):
    seen = 0

    def step_end(self, run: EngineRun) -> None: ...

    def state_dict(self) -> dict[str, int]:
        Unstable.seen += 1
        return {"seen": Unstable.seen}

    def load_state_dict(self, state: dict[str, int]) -> None:
        pass


class Shared(Hook):
    open_runs = 0

    def setup(self, run: EngineRun) -> None:
        Shared.open_runs += 1
        if Shared.open_runs > 1:
            Shared.open_runs = 0
            raise InjectedError("already open")

    def teardown(self, run: EngineRun) -> None:
        Shared.open_runs = 0


def test_a_hook_that_draws_random_numbers_is_caught() -> None:
    with pytest.raises(AssertionError):
        hook_suite(Random).test_training_gives_the_same_weights_without_it()


def test_a_hook_that_stops_training_must_set_acts_on_training() -> None:
    suite = hook_suite(Stopper)
    with pytest.raises(AssertionError):
        suite.test_other_hooks_get_the_same_events_without_it()
    suite.acts_on_training = True
    suite.test_other_hooks_get_the_same_events_without_it()
    suite.test_training_gives_the_same_weights_without_it()


def test_a_hook_that_raises_in_its_method_error_is_caught() -> None:
    with pytest.raises(AssertionError, match="it raises in its method error"):
        hook_suite(Masking).test_it_does_not_hide_the_error_of_a_failing_run()


def test_a_hook_that_does_not_restore_its_state_is_caught() -> None:
    with pytest.raises(AssertionError):
        hook_suite(Unstable).test_its_state_survives_a_round_trip()


def test_hooks_that_share_state_are_caught() -> None:
    with pytest.raises(InjectedError, match="already open"):
        hook_suite(Shared).test_two_instances_work_in_one_run()


class Detached(TinyModel):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return super().forward(x) * 0 + self.linear.weight.sum() * 0


class Unseeded(TinyTask):
    calls = 0

    def pre_batch_forward(self, batch: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        Unseeded.calls += 1
        return {**batch, "x": batch["x"] + Unseeded.calls}

    def batch_metric(self, out: object, batch: object) -> dict[str, tuple[float, int]]:
        return {"acc": (float(Unseeded.calls), 1)}


class Tampering(TinyTask):
    def batch_forward(self, model: nn.Module, batch: dict[str, torch.Tensor]) -> object:
        with torch.no_grad():
            model.linear.bias += 1.0
        return super().batch_forward(model, batch)


def test_a_model_that_does_not_learn_is_caught() -> None:
    with pytest.raises(AssertionError, match="no weight changed"):
        task_suite(TinyTask, Detached).test_it_trains()


def test_a_task_with_unseeded_randomness_is_caught() -> None:
    suite = task_suite(Unseeded)
    with pytest.raises(AssertionError):
        suite.test_the_same_seed_trains_the_same_weights()
    with pytest.raises(AssertionError, match="val/acc"):
        suite.test_evaluating_twice_gives_the_same_numbers()


def test_a_task_that_changes_the_model_in_evaluation_is_caught() -> None:
    with pytest.raises(AssertionError):
        task_suite(Tampering).test_evaluating_does_not_change_the_model()
