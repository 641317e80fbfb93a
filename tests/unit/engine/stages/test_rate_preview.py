"""Tests of learning rates that are looked up without taking steps."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import torch
from torch.optim import lr_scheduler

from engine.parts import Sums, adder, fit, make_run
from epochal.components.schedules import Constant, Cosine, Linear
from epochal.config import parse_duration
from epochal.engine import Monitor, Schedule, TorchSchedule, Train, Warmup
from epochal.engine.execute import describe_plan
from epochal.engine.interfaces.stage import Stage
from epochal.engine.stages.rate_preview import preview_rates

if TYPE_CHECKING:
    from epochal.engine.run.engine_run import EngineRun


def by_epochs(schedule: Schedule) -> Schedule:
    schedule.unit = "epoch"
    return schedule


SCHEDULES: dict[str, Any] = {
    "none": lambda one: None,
    "cosine": lambda one: Cosine(restarts=1),
    "warm": lambda one: Warmup(Linear(), 3),
    "epochs": lambda one: by_epochs(Cosine()),
    "warm epochs": lambda one: Warmup(by_epochs(Linear()), 3),
    "torch": lambda one: TorchSchedule(lr_scheduler.ExponentialLR(one, 0.5)),
    "torch epochs": lambda one: TorchSchedule(lr_scheduler.ExponentialLR(one, 0.5), unit="epoch"),
    "torch evaluations": lambda one: TorchSchedule(lr_scheduler.StepLR(one, 1), unit="eval"),
    "warm torch": lambda one: Warmup(lr_scheduler.CosineAnnealingLR(one, 5), "1ep"),
}


def run_with(make: Any, **options: Any) -> tuple[EngineRun, list[list[float]]]:
    """A run of two groups, and the rates that its steps will be taken with."""
    model = adder()
    groups = [
        {"params": model[0].parameters(), "lr": 0.1, "name": "body"},
        {"params": model[3].parameters(), "lr": 0.01},
    ]
    optimizer = torch.optim.SGD(groups)
    used: list[list[float]] = []
    optimizer.register_step_pre_hook(
        lambda one, *_: used.append([group["lr"] for group in one.param_groups])
    )
    parts = {"optimizer": optimizer, "schedule": make(optimizer), "monitor": Monitor("val/mae")}
    parts |= options.pop("parts", {})
    options = {"for_": "3ep", "eval_every": "4st", **options}
    return make_run(Sums(20), model, parts=parts, **options), used


@pytest.mark.parametrize("name", SCHEDULES)
def test_the_rates_of_a_preview_are_those_of_the_steps(name: str) -> None:
    run, used = run_with(SCHEDULES[name])
    fit(run)
    run, untouched = run_with(SCHEDULES[name])
    describe_plan(run, Train())
    preview = preview_rates(run)
    assert untouched == []
    assert preview.steps == tuple(range(15))
    assert list(preview.rates) == ["lr/body", "lr/1"]
    assert [list(one) for one in zip(*preview.rates.values(), strict=True)] == used
    assert preview.evaluations == (4, 8, 12)
    assert preview.note == ""


def test_the_preview_of_a_long_run_has_at_most_1002_points_and_the_last_step() -> None:
    run, _ = run_with(lambda one: Linear(), for_="100000st")
    describe_plan(run, Train())
    preview = preview_rates(run)
    assert len(preview.steps) <= 1002
    assert preview.steps[-1] == 99_999
    assert preview.rates["lr/body"][500] == pytest.approx(0.05)


def test_the_preview_notes_what_is_unknown() -> None:
    run, _ = run_with(lambda one: TorchSchedule(lr_scheduler.ReduceLROnPlateau(one)), for_="1h")
    describe_plan(run, Train())
    preview = preview_rates(run)
    assert len(preview.steps) == 1000
    assert "the number of steps is unknown" in preview.note
    assert "as if the monitored metric always became better" in preview.note


def test_evaluations_are_marked_if_their_steps_are_known() -> None:
    table: list[tuple[Any, bool, tuple[int, ...]]] = [
        ("1ep", True, (5, 10, 15)),
        ("1ep", False, ()),
        (0, True, ()),
        ("10s", True, ()),
    ]
    for every, has_data, marks in table:
        run, _ = run_with(lambda one: None, eval_every=every)
        run.task.val_loader = run.task.val_loader if has_data else None
        describe_plan(run, Train())
        assert preview_rates(run).evaluations == marks, (every, has_data)


def test_the_preview_goes_through_all_stages() -> None:
    stages = (
        Stage(name="one", length=parse_duration("4st"), schedule=lambda _: Warmup(Constant(), 2)),
        Stage(name="two", length=parse_duration("2ep"), schedule=lambda _: Linear()),
    )

    def make() -> tuple[EngineRun, list[list[float]]]:
        return run_with(lambda one: None, parts={"stages": stages})

    run, used = make()
    fit(run)
    run, _ = make()
    describe_plan(run, Train())
    preview = preview_rates(run)
    assert [list(one) for one in zip(*preview.rates.values(), strict=True)] == used
    assert preview.stages == (("one", 0), ("two", 4))
