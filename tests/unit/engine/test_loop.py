"""Tests of the training loop."""

from __future__ import annotations

import sys
from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader, Dataset, TensorDataset

from engine.parts import EventRecorder, Points, Sums, adder, fit, make_run, weights
from epochal.engine import Every, Hook, Monitor, Run
from epochal.engine.loop import take_steps
from epochal.engine.measure.clock import Clock


def test_epochs_are_exact_and_do_not_drift_with_few_batches_defect_10() -> None:
    for batches in (1, 2, 5, 10):
        recorder = EventRecorder("epoch_start", "step_end")
        recorder.on = ("train",)
        result = fit(make_run(Sums(batches * 2, batch_size=2), hooks=(recorder,), for_="7ep"))
        assert (result.epochs, result.steps, result.reason) == (7, 7 * batches, "max_epochs")
        assert recorder.entries.count("epoch_start train") == 7
        assert result.samples == 14 * batches


def test_training_events_come_in_order() -> None:
    recorder = EventRecorder()
    fit(make_run(Sums(8, val=0), hooks=(recorder,), for_="2ep"))
    epoch = ["epoch_start train", "loop_start train", "{}", "loop_end train", "epoch_end train"]

    def steps(first: int) -> list[str]:
        return [
            entry
            for index in (0, 1)
            for entry in (
                f"batch_start train {index}",
                f"batch_end train {index}",
                f"step_end {first + index}",
            )
        ]

    assert recorder.entries == [
        *["setup", "assembled", "run_start", "stage_start main"],
        *[*epoch[:2], *steps(1), *epoch[3:]],
        *[*epoch[:2], *steps(3), *epoch[3:]],
        *["stage_end main", "run_end", "teardown"],
    ]


def test_evaluations_come_after_the_training_epoch() -> None:
    recorder = EventRecorder("epoch_end", "eval_start", "eval_end", "step_end")
    fit(make_run(Sums(8), hooks=(recorder,), for_="1ep", eval_every={"val": "1ep", "test": "1st"}))
    evaluation = ["eval_start test", "epoch_end test", "eval_end test"]
    assert recorder.entries == [
        *["step_end 1", *evaluation, "step_end 2", *evaluation],
        *["epoch_end train", "eval_start val", "epoch_end val", "eval_end val"],
    ]


def test_an_ordinary_step_makes_no_further_calls() -> None:
    calls: list[str] = []
    run = make_run(Sums(40, batch_size=2))
    batches = iter([("a",), ("b",), ("c",)])

    class Feeding:
        def epoch(self, number: int) -> Any:
            return batches

    class Watching:
        next_due = sys.maxsize

        def __getattr__(self, name: str) -> Any:
            raise AssertionError(f"the plan was asked for {name}")

    def step(microbatches: tuple[str, ...]) -> None:
        return None

    def note(frame: Any, event: str, argument: Any) -> None:
        if event == "call":
            calls.append(frame.f_code.co_name)
        elif event == "c_call":
            calls.append(argument.__name__)

    run.feed, run.plan, run.take_step = Feeding(), Watching(), step
    sys.setprofile(note)
    try:
        take_steps(run)
    finally:
        sys.setprofile(None)
    assert run.step == 3
    assert calls == ["take_steps", "epoch", "step", "step", "step", "setprofile"]


def test_without_hooks_only_the_end_is_due() -> None:
    asked: list[int] = []
    run = make_run(Sums(40, batch_size=2, val=0), for_="3ep")
    original = run.plan.run_due
    run.plan.run_due = lambda run: (asked.append(run.step), original(run))
    fit(run)
    assert asked == [60]


def test_an_epoch_that_is_stopped_ends_but_does_not_count() -> None:
    recorder = EventRecorder("loop_end", "epoch_end", "stage_end", "eval_start")
    result = fit(make_run(hooks=(recorder,), for_="7st", eval_every="1ep"))
    assert (result.steps, result.epochs) == (7, 1)
    assert recorder.entries.count("epoch_end train") == 2
    assert recorder.entries.count("eval_start val") == 1
    assert recorder.entries[-1] == "stage_end main"
    completed = fit(make_run(for_="10st"))
    assert (completed.epochs, completed.reason) == (2, "max_steps")


def test_a_stream_without_a_length_trains_for_steps_or_epochs() -> None:
    class Stream:
        def __iter__(self) -> Any:
            return iter(list(Sums().train_loader))

    task = Sums()
    task.train_loader = Stream()
    assert fit(make_run(task, for_="2ep")).steps == 10
    assert fit(make_run(task, for_="7st")).epochs == 1


def test_an_endless_stream_can_be_trained_for_steps() -> None:
    class Endless:
        def __iter__(self) -> Any:
            while True:
                yield from Sums().train_loader

    task = Sums()
    task.train_loader = Endless()
    result = fit(make_run(task, for_="12st", eval_every="5st"))
    assert (result.steps, result.epochs) == (12, 0)


def test_a_hook_stops_the_run_after_its_step() -> None:
    run = make_run(for_="10ep")
    run.on("step_end", lambda run: run.stop("early_stop"), every="3st")
    result = fit(run)
    assert (result.status, result.reason, result.steps) == ("stopped", "early_stop", 3)
    assert result.ok


@pytest.mark.parametrize("event", ["epoch_start", "loop_start"])
@pytest.mark.parametrize("epoch", [0, 1])
def test_a_stop_before_the_first_step_of_an_epoch_takes_no_step(event: str, epoch: int) -> None:
    recorder = EventRecorder("epoch_end", "better_model")
    run = make_run(
        hooks=(recorder,), eval_every=0, for_="3ep", parts={"monitor": Monitor.parse("-train/loss")}
    )
    run.on(event, lambda run: run.stop("enough") if run.epoch == epoch else None)
    result = fit(run)
    assert (result.status, result.reason) == ("stopped", "enough")
    assert (result.steps, result.epochs) == (5 * epoch, epoch)
    assert recorder.entries == ["better_model", "epoch_end train"] * epoch + ["epoch_end train"]


def test_modules_keep_the_mode_that_is_set_at_run_start() -> None:
    model, seen = adder(dropout=0.5), []
    run = make_run(Sums(), model.eval(), for_="2ep", eval_every="1st", eval_at_start=True)
    run.on("run_start", lambda run: run.model[2].eval())
    run.on("step_end", lambda: seen.append((model.training, model[2].training)))
    fit(run)
    assert seen == [(True, False)] * 10


def test_the_first_reason_to_stop_counts() -> None:
    run = make_run(for_="10ep")
    run.on("step_end", lambda run: run.stop("first"), priority=1)
    run.on("step_end", lambda run: run.stop("second"), priority=2)
    assert fit(run).reason == "first"


class Hurrying(Hook):
    """Moves the clock by ten seconds with each step, as the alarm would notice."""

    priority = 1

    def __init__(self) -> None:
        self.seconds = 0.0

    def run_start(self, run: Run) -> None:
        run.clock = Clock(lambda: self.seconds)

    def batch_end(self, run: Run, split: str, index: int, batch: Any, out: Any) -> None:
        if split == "train":
            self.seconds += 10.0
            run.plan.wake()


@pytest.mark.parametrize(
    ("options", "status"),
    [({"for_": "25s"}, "finished"), ({"for_": "9ep", "max_time": "25s"}, "stopped")],
)
def test_time_ends_the_run_after_a_step(options: dict[str, Any], status: str) -> None:
    result = fit(make_run(hooks=(Hurrying(),), **options))
    assert (result.status, result.reason, result.steps) == (status, "max_time", 3)


def test_evaluations_at_start_and_end_never_repeat_a_step() -> None:
    def evaluated(**options: Any) -> list[int]:
        points = Points()
        fit(make_run(setting={"writer": points}, for_="2ep", **options))
        return [step for step, values in points.points if "val/mae" in values]

    assert evaluated() == [5, 10]
    assert evaluated(eval_at_start=True) == [0, 5, 10]
    assert evaluated(eval_at_end=True) == [5, 10]
    assert evaluated(eval_every=0, eval_at_end=True) == [10]
    assert evaluated(eval_every="4st", eval_at_end=True) == [4, 8, 10]


def test_hooks_with_a_period_in_epochs_are_called_before_evaluations() -> None:
    order: list[str] = []

    class Speaking(Hook):
        every = Every.parse("1ep")

        def step_end(self, run: Run) -> None:
            order.append(f"epoch {run.epoch_number}")

    run = make_run(hooks=(Speaking(),), for_="2ep")
    run.on("eval_start", lambda run: order.append(f"evaluation {run.epoch_number}"))
    fit(run)
    assert order == ["epoch 1", "evaluation 1", "epoch 2", "evaluation 2"]


def test_epoch_means_are_independent_of_other_windows() -> None:
    points = Points()
    windows: list[float] = []

    class Reading(Hook):
        every = Every.parse("2st")

        def run_start(self, run: Run) -> None:
            self.window = run.meter.window()

        def step_end(self, run: Run) -> None:
            windows.append(self.window.read()["loss"])

    fit(make_run(Sums(val=0), hooks=(Reading(),), lr=0.0, setting={"writer": points}, for_="2ep"))
    epochs = [values["train/epoch/loss"] for _, values in points.points]
    assert len(windows) == 5
    assert sum(windows) / 5 == pytest.approx(sum(epochs) / 2)


def test_epoch_end_gets_the_means_of_the_epoch() -> None:
    given: list[dict[str, float]] = []
    run = make_run(for_="1ep")
    run.on("onEpochEnd", lambda metrics: given.append(metrics))
    result = fit(run)
    assert set(given[0]) == {"train/loss", "train/mae"}
    assert result.metrics["train/epoch/loss"] == given[0]["train/loss"]


def test_the_order_of_samples_differs_between_epochs_defect_24() -> None:
    class Seeing(Sums):
        def pre_batch_forward(self, batch: list[torch.Tensor]) -> list[torch.Tensor]:
            self.meta.setdefault("seen", []).append(batch[0].sum().item())
            return batch

    task = Seeing(val=0)
    run = make_run(task, for_="2ep")
    fit(run)
    seen = task.meta["seen"]
    assert seen[:5] != seen[5:]


def test_the_seed_determines_the_weights() -> None:
    def trained(seed: int) -> torch.Tensor:
        torch.rand(seed + 1)
        model = adder(dropout=0.5)
        fit(make_run(Sums(), model, for_="2ep", setting={"seed": seed}))
        return weights(model)

    assert torch.equal(trained(3), trained(3))
    assert not torch.equal(trained(3), trained(4))


def test_better_models_are_announced_with_their_value() -> None:
    values: list[float] = []
    run = make_run(for_="4ep", parts={"monitor": Monitor.parse("-val/mae")})
    run.on("on_better_model", lambda value: values.append(value))
    result = fit(run)
    assert values == sorted(values, reverse=True)
    assert result.best == values[-1]


def test_workers_do_not_change_the_result() -> None:
    def trained(workers: int) -> torch.Tensor:
        task = Sums(val=0)
        dataset: TensorDataset = task.train_loader.dataset
        task.train_loader = DataLoader(dataset, batch_size=4, shuffle=True, num_workers=workers)
        model = adder(dropout=0.5)
        fit(make_run(task, model, for_="2ep"))
        return weights(model)

    assert torch.equal(trained(0), trained(1))


@pytest.mark.gpu
@pytest.mark.filterwarnings("ignore:Synchronization debug mode")
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_no_step_waits_for_the_device() -> None:
    model = adder(dropout=0.5).cuda()
    run = make_run(
        Sums(40, val=8),
        model,
        for_="3ep",
        optim={"clip": 1.0, "accumulate": 2},
        log={"grad_norm": True},
        parts={"optimizer": torch.optim.AdamW(model.parameters())},
        setting={"device": "cuda"},
    )
    run.on("loop_start", lambda split: torch.cuda.set_sync_debug_mode("error"))
    run.on("loop_end", lambda split: torch.cuda.set_sync_debug_mode("default"))
    try:
        metrics = fit(run).metrics
    finally:
        torch.cuda.set_sync_debug_mode("default")
    assert {"train/loss", "train/grad_norm", "val/mae"} <= set(metrics)


class Broken(Dataset[tuple[torch.Tensor, torch.Tensor]]):
    def __len__(self) -> int:
        return 8

    def __getitem__(self, index: int) -> Any:
        if index == 6:
            raise ArithmeticError("a sample")
        return torch.zeros(3), torch.zeros(1)


class FailingLoss(Sums):
    def batch_loss(self, out: Any, batch: Any) -> dict[str, Any]:
        raise ArithmeticError


def fails_between_steps(task: Any = None, *hooks: object, **options: Any) -> bool:
    """Whether the run that fails with ArithmeticError says that it was between two steps."""
    run = make_run(task, hooks=hooks, for_="1ep", **options)
    with pytest.raises(ArithmeticError):
        fit(run)
    return run.is_between_steps


def with_broken(split: str) -> Sums:
    task = Sums()
    setattr(task, f"{split}_loader", DataLoader(Broken(), batch_size=4))
    return task


def hook_at(event: str) -> Hook:
    def fail(*_: object) -> None:
        raise ArithmeticError

    return type("Failing", (Hook,), {event: fail})()


def test_errors_of_data_and_due_calls_are_between_steps() -> None:
    assert fails_between_steps(with_broken("train"))
    assert fails_between_steps(with_broken("val"), eval_every="2st", sanity_batches=0)
    assert fails_between_steps(with_broken("val"), eval_every="1ep", sanity_batches=0)
    assert fails_between_steps(None, hook_at("step_end"))


def test_other_errors_are_not_between_steps() -> None:
    assert not fails_between_steps(FailingLoss())
    assert not fails_between_steps(None, hook_at("run_start"))
    assert not fails_between_steps(None, hook_at("epoch_end"), eval_every=0)
