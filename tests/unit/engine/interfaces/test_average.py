"""Tests of averaged weights in a run: updated, evaluated, monitored."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from engine.parts import EventRecorder, Points, Sums, adder, fit, make_run, weights
from epochal.components.average import Ema, Swa
from epochal.engine import Average, Monitor, Run
from epochal.errors import TaskError


class Noting(Sums):
    """Notes the weights that each evaluation used, and its events."""

    def __init__(self, **data: int) -> None:
        super().__init__(**data)
        self.seen: list[Tensor] = []
        self.events: list[str] = []

    def batch_forward(self, model: nn.Module, batch: Any) -> dict[str, Tensor]:
        if not model.training:
            self.seen.append(weights(model))
        return super().batch_forward(model, batch)

    def epoch_start(self, run: Run, split: str) -> None:
        self.events.append(f"start {split}")

    def epoch_end(self, run: Run, split: str, metrics: dict[str, float]) -> None:
        self.events.append(f"end {split}: {', '.join(metrics)}")


def averaging(task: Any = None, **options: Any) -> Run:
    given = {"average": Ema(decay=0.5), **options.pop("parts", {})}
    return make_run(task, parts=given, **{"for_": "2ep", "sanity_batches": 0, **options})


def test_val_is_evaluated_with_both_sets_of_weights() -> None:
    points = Points()
    result = fit(averaging(setting={"writer": points}))
    assert result.metrics["val/mae"] != result.metrics["val_ema/mae"]
    assert {"val/mae", "val_ema/mae"} <= points.points[-1][1].keys()
    assert "test_ema/mae" not in result.metrics


def test_the_average_counts_the_weights_of_all_steps() -> None:
    task = Noting()
    run = averaging(task, for_="3st", eval_every="3st")
    history = [weights(run.model)]
    run.on("step_end", lambda run: history.append(weights(run.model)), priority=1)
    fit(run)
    expected = history[0] / 8 + history[1] / 8 + history[2] / 4 + history[3] / 2
    assert torch.equal(task.seen[0], history[3])
    torch.testing.assert_close(task.seen[-1], expected)


def test_an_average_changes_nothing_about_the_training() -> None:
    plain = adder()
    fit(make_run(model=plain, for_="2ep"))
    for average in (Ema(), Swa(every="3st")):  # type: ignore[arg-type]
        averaged = adder()
        fit(make_run(model=averaged, parts={"average": average}, for_="2ep"))
        assert torch.equal(weights(plain), weights(averaged)), average


def test_the_task_gets_the_events_of_both_evaluations_and_hooks_only_once() -> None:
    task, recorder = (
        Noting(),
        EventRecorder("epoch_start", "epoch_end", "eval_start", "eval_end", "loop_end"),
    )
    fit(averaging(task, for_="1ep", hooks=(recorder,)))
    assert task.events[2:] == [
        "start val",
        "end val: val/mae",
        "start val",
        "end val: val_ema/mae",
    ]
    assert recorder.entries[-5:] == [
        "eval_start val",
        "epoch_start val",
        "loop_end val",
        "epoch_end val",
        "eval_end val",
    ]


def test_eval_end_has_the_metrics_of_both_evaluations() -> None:
    metrics_seen = []
    run = averaging(for_="1ep")
    run.on("eval_end", lambda metrics: metrics_seen.append(sorted(metrics)))
    fit(run)
    assert metrics_seen == [["val/mae", "val_ema/mae"]]


def test_both_evaluations_draw_the_same_random_numbers() -> None:
    class Random(Sums):
        def batch_metric(self, out: Any, batch: Any) -> Any:
            return {"draw": (torch.rand(()), 1)}

    metrics = fit(averaging(Random())).metrics
    assert metrics["val/draw"] == metrics["val_ema/draw"]


def test_a_metric_of_averaged_weights_can_be_monitored() -> None:
    monitor = Monitor("val_ema/mae")
    better = []
    run = averaging(parts={"monitor": monitor}, sanity_batches=2)
    run.on("better_model", lambda value: better.append(value))
    result = fit(run)
    assert result.best == monitor.best == min(better)
    assert result.metrics["val_ema/mae"] == monitor.last


def test_a_monitor_of_averaged_weights_needs_an_average_and_val_data() -> None:
    monitor = {"monitor": Monitor("val_ema/mae")}
    with pytest.raises(TaskError, match=r"monitor: no metric is named 'val_ema/mae'\n .* val/mae"):
        fit(make_run(parts=monitor, for_="1ep"))
    with pytest.raises(TaskError, match=r"monitor: '-val_ema/mae' needs a validation loader"):
        fit(averaging(Sums(val=0), parts=monitor, sanity_batches=2))


def test_an_average_works_with_lbfgs() -> None:
    model = adder()
    optimizer = torch.optim.LBFGS(model.parameters(), max_iter=2)
    parts = {"optimizer": optimizer, "average": Ema(decay=0.5)}
    metrics = fit(make_run(model=model, parts=parts, for_="1ep")).metrics
    assert metrics["val/mae"] != metrics["val_ema/mae"]


def test_accumulated_steps_count_once() -> None:
    class Counting(Average):
        updates = 0

        def start(self, model: nn.Module) -> None:
            pass

        def update(self, skipped: Tensor | None = None) -> None:
            assert skipped is None
            self.updates += 1

        def swapped(self) -> Any:
            return torch.no_grad()

        def state_tensors(self) -> dict[str, Tensor]:
            return {}

    average = Counting()
    result = fit(averaging(parts={"average": average}, optim={"accumulate": 2}))
    assert average.updates == result.steps == 6


def test_the_model_gets_its_weights_back_if_an_evaluation_fails() -> None:
    class Failing(Sums):
        passes = 0

        def loop_start(self, run: Run, split: str) -> None:
            self.passes += split == "val"
            if self.passes == 2:
                raise ValueError("on purpose")

    run = averaging(Failing(), for_="1ep")
    model, last = run.model, []
    run.on("step_end", lambda run: last.append(weights(run.model)))
    with pytest.raises(ValueError, match="on purpose"):
        fit(run)
    assert torch.equal(weights(model), last[-1])


def test_weights_that_are_added_during_a_run_are_averaged() -> None:
    run = averaging(for_="3st", eval_every=0)
    average = run.average
    assert average is not None

    def grow(run: Run) -> None:
        if run.step == 1:
            assert run.optimizer is not None
            assert isinstance(run.model, nn.Sequential)
            run.model.append(nn.Linear(1, 1))
            run.optimizer.add_param_group({"params": run.model[4].parameters()})

    run.on("step_end", grow)
    fit(run)
    assert "4.weight" in average.state_tensors()


def test_replaced_weights_are_averaged_from_the_next_epoch_on() -> None:
    run = averaging(for_="2ep", eval_every=0)
    average, model = run.average, run.model
    assert average is not None
    assert isinstance(model, nn.Sequential)

    def replace(run: Run) -> None:
        if run.step == 5:
            model[3] = nn.Linear(8, 1)
            assert run.optimizer is not None
            run.optimizer.param_groups[0]["params"][2:] = model[3].parameters()

    run.on("step_end", replace)
    places: dict[int, dict[str, Tensor]] = {}
    run.on("step_end", lambda run: places.setdefault(run.step, average.state_tensors()))
    fit(run)
    assert places[10]["0.weight"] is places[1]["0.weight"]
    assert places[10]["3.weight"] is not places[1]["3.weight"]


def noted(average: Swa, **options: Any) -> tuple[list[Tensor], list[Tensor], Any]:
    """The weights after each step, those of each averaged evaluation, and the result."""
    after: list[Tensor] = []
    task = Noting(val=4)
    run = make_run(task, adder(), parts={"average": average}, sanity_batches=0, **options)
    run.on("step_end", lambda run: after.append(weights(run.model)), priority=1)
    result = fit(run)
    return after, task.seen[1::2], result


def test_swa_averages_the_weights_after_each_epoch_from_its_start_on() -> None:
    after, seen, result = noted(
        Swa(start="2ep", every="1ep"),  # type: ignore[arg-type]
        for_="4ep",
        eval_every="1ep",
    )
    ends = [after[index] for index in (4, 9, 14, 19)]  # five steps per epoch
    assert torch.equal(seen[0], ends[0])
    assert torch.equal(seen[1], ends[1])
    torch.testing.assert_close(seen[2], (ends[1] + ends[2]) / 2)
    torch.testing.assert_close(seen[3], (ends[1] + ends[2] + ends[3]) / 3)
    assert "val_ema/mae" in result.metrics


def test_swa_can_average_every_few_steps() -> None:
    after, seen, _ = noted(
        Swa(start="4st", every="2st"),  # type: ignore[arg-type]
        for_="8st",
        eval_every="8st",
    )
    torch.testing.assert_close(seen[-1], (after[3] + after[5] + after[7]) / 3)


def test_the_plan_lists_the_updates_of_an_average() -> None:
    rows: list[Any] = []
    run = make_run(Sums(), parts={"average": Swa(every="3st")})  # type: ignore[arg-type]
    run.on("run_start", lambda run: rows.extend(run.plan.describe()))
    fit(run)
    assert [row.cadence for row in rows if row.hook == "average"] == ["3st"]


def test_ema_can_be_updated_every_few_steps() -> None:
    history = [weights(adder())]
    run = make_run(parts={"average": Ema(decay=0.5, every="2st")}, for_="4st", eval_every=0)
    run.on("step_end", lambda run: history.append(weights(run.model)), priority=1)
    average, model = run.average, run.model
    fit(run)
    assert average is not None
    with average.swapped():
        result = weights(model)
    torch.testing.assert_close(result, history[0] / 4 + history[2] / 4 + history[4] / 2)
