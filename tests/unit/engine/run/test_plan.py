"""Tests of what happens between which steps."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import pytest
import torch

from engine.parts import Hands, make_run
from epochal.engine import Every, Hook
from epochal.engine.events.events import Events
from epochal.engine.measure.clock import Clock
from epochal.engine.measure.meter import Meter
from epochal.engine.run.plan import Plan, PlanRow
from epochal.engine.step.updater import Updater

if TYPE_CHECKING:
    from collections.abc import Callable

    from epochal.engine.run.engine_run import EngineRun


class SilentAlarm:
    """Remembers what was asked for; tests ring by hand."""

    def __init__(self) -> None:
        self.asked: list[float] = []

    def set(self, seconds: float, function: Callable[[], None]) -> None:
        self.asked.append(seconds)
        self.ring = function

    def cancel(self) -> None: ...


class Noting(Hook):
    def __init__(self, every: object = None, *, priority: int = 500) -> None:
        self.every = None if every is None else Every.parse(every)
        self.priority = priority
        self.steps: list[int] = []

    def step_end(self, run: EngineRun) -> None:
        self.steps.append(run.step)


@pytest.fixture
def run() -> EngineRun:
    run = make_run()
    run.clock = Clock(Hands())
    return run


def take_steps(run: EngineRun, plan: Plan, count: int) -> int:
    """Step as the loop does; says how often the plan was asked."""
    asked = 0
    for _ in range(count):
        run.step += 1
        run.feed.samples += 4
        if run.step >= plan.next_due:
            asked += 1
            plan.run_due(run)
    return asked


def test_without_listeners_nothing_is_due(run: EngineRun) -> None:
    plan = Plan(Events())
    plan.start(run)
    assert plan.next_due == sys.maxsize
    assert take_steps(run, plan, 1000) == 0


def test_a_period_in_steps_is_exact_and_other_steps_are_not_due(run: EngineRun) -> None:
    hook = Noting("50st")
    plan = Plan(Events([hook]))
    plan.start(run)
    assert take_steps(run, plan, 200) == 4
    assert hook.steps == [50, 100, 150, 200]


def test_a_period_of_zero_is_never_and_divides_by_nothing_defect_14(run: EngineRun) -> None:
    hook = Noting(0)
    plan = Plan(Events([hook]))
    plan.start(run)
    plan.add_period("evaluate", Every.NEVER, lambda run: None)
    assert take_steps(run, plan, 10) == 0
    assert hook.steps == []
    assert plan.describe() == []


def test_periods_in_samples_are_due_at_the_step_that_reaches_them(run: EngineRun) -> None:
    hook = Noting("10sa")
    plan = Plan(Events([hook]))
    plan.start(run)
    take_steps(run, plan, 10)
    assert hook.steps == [3, 5, 8, 10]


def test_several_periods_come_in_order_of_priority(run: EngineRun) -> None:
    order: list[str] = []
    events = Events()
    for name, priority in (("late", 600), ("early", 100)):
        events.add_function(
            "step_end", lambda name=name: order.append(name), priority=priority, every="2st"
        )
    plan = Plan(events)
    plan.add_once("stop", Every(2, "st"), lambda run: order.append("stop"))
    plan.add_period("evaluate", Every(2, "st"), lambda run: order.append("evaluate"))
    plan.start(run)
    take_steps(run, plan, 3)
    assert order == ["early", "late", "evaluate", "stop"]


def test_a_hook_without_the_train_split_has_no_step_end(run: EngineRun) -> None:
    hook = Noting()
    hook.on = ("val",)
    plan = Plan(Events([hook]))
    plan.start(run)
    take_steps(run, plan, 3)
    assert hook.steps == []


def test_wake_makes_the_current_step_due_once(run: EngineRun) -> None:
    plan = Plan(Events())
    plan.start(run)
    plan.wake()
    assert take_steps(run, plan, 5) == 1


def test_a_wake_during_due_calls_is_not_lost(run: EngineRun) -> None:
    events = Events()
    plan = Plan(events)
    events.add_function("step_end", plan.wake, priority=0, every="5st")
    plan.start(run)
    assert take_steps(run, plan, 5) == 1
    assert plan.next_due == 0
    assert take_steps(run, plan, 1) == 1


def test_periods_in_time_wake_the_plan(run: EngineRun) -> None:
    hook, alarm = Noting("10s"), SilentAlarm()
    plan = Plan(Events([hook]), alarm=alarm)
    plan.start(run)
    assert alarm.asked == [10]
    take_steps(run, plan, 3)
    run.clock.now.seconds = 12.0
    plan.wake()
    take_steps(run, plan, 3)
    assert hook.steps == [4]
    assert alarm.asked == [10, 8]


def test_an_early_alarm_is_set_again(run: EngineRun) -> None:
    hook, alarm = Noting("10s"), SilentAlarm()
    plan = Plan(Events([hook]), alarm=alarm)
    plan.start(run)
    run.clock.now.seconds = 9.5
    alarm.ring()
    assert take_steps(run, plan, 2) == 1
    assert (hook.steps, alarm.asked) == ([], [10, 0.5])


def test_due_calls_stay_due_when_listeners_are_added(run: EngineRun) -> None:
    seen: list[int] = []
    events, added = Events(), Noting("3st")
    plan = Plan(events)

    def add(run: EngineRun) -> None:
        if run.step == 2:
            events.add_hook(added)
            plan.start(run)

    events.add_function("step_end", add, priority=0, every=None)
    plan.add_period("evaluate", Every(2, "st"), lambda run: seen.append(run.step))
    plan.start(run)
    take_steps(run, plan, 6)
    assert seen == [2, 4, 6]
    assert added.steps == [3, 6]


def test_hooks_of_one_class_keep_their_times_when_listeners_are_added(run: EngineRun) -> None:
    events = Events()
    plan = Plan(events)

    class Adding(Noting):
        def step_end(self, run: EngineRun) -> None:
            super().step_end(run)
            plan.start(run)

    hooks = [Adding("2st") for _ in range(3)]
    for hook in hooks:
        events.add_hook(hook)
    plan.start(run)
    take_steps(run, plan, 5)
    assert [hook.steps for hook in hooks] == [[2, 4]] * 3


def test_a_single_call_does_not_run_again_when_listeners_are_added(run: EngineRun) -> None:
    seen: list[int] = []
    plan = Plan(Events())
    plan.add_once("look", Every(2, "st"), lambda run: seen.append(run.step), priority=100)
    plan.start(run)
    take_steps(run, plan, 3)
    plan.start(run)
    take_steps(run, plan, 3)
    assert seen == [2]


def test_calls_can_be_added_during_the_run(run: EngineRun) -> None:
    seen: list[str] = []
    plan = Plan(Events())
    plan.start(run)
    plan.add_once("soon", Every(2, "st"), lambda run: seen.append(f"once {run.step}"), priority=1)
    plan.add_period("often", Every(3, "st"), lambda run: seen.append(f"often {run.step}"))
    take_steps(run, plan, 6)
    assert seen == ["once 2", "often 3", "often 6"]


def test_periods_in_epochs_are_due_between_epochs(run: EngineRun) -> None:
    hook = Noting("2ep")
    plan = Plan(Events([hook]))
    plan.start(run)
    for run.epoch in (1, 2, 3, 4):
        take_steps(run, plan, 5)
        plan.run_due_between_epochs(run)
    assert hook.steps == [10, 20]


def test_periods_in_time_are_due_between_epochs_too(run: EngineRun) -> None:
    plan = Plan(Events(), alarm=SilentAlarm())
    plan.add_once("stop", Every(5, "s"), lambda run: run.stop("max_time"))
    plan.start(run)
    run.clock.now.seconds = 6.0
    plan.wake()
    plan.run_due_between_epochs(run)
    assert run.stop_reason == "max_time"


def test_the_plan_can_be_described_before_the_run() -> None:
    class Watching(Hook):
        priority = 250
        on = ("val", "test")
        every = Every.parse("2ep")

        def epoch_end(self, run: EngineRun, split: str, metrics: dict[str, float]) -> None: ...

        def run_start(self, run: EngineRun) -> None: ...

    plan = Plan(Events([Noting(), Noting("50st", priority=100), Watching()]))
    plan.add_period("evaluate val", Every(1, "ep"), lambda run: None)
    plan.add_once("stop: max_epochs", Every(10, "ep"), lambda run: None)
    assert plan.describe() == [
        PlanRow("run_start", 250, "Watching.run_start", "each on val, test"),
        PlanRow("step_end", 100, "Noting.step_end", "50st"),
        PlanRow("step_end", 500, "Noting.step_end", "each"),
        PlanRow("step_end", 10_000, "evaluate val", "1ep"),
        PlanRow("step_end", 20_000, "stop: max_epochs", "once at 10ep"),
        PlanRow("epoch_end", 250, "Watching.epoch_end", "2ep on val, test"),
    ]


def test_requested_means_are_delivered_first_at_the_next_boundary(
    run: EngineRun,
) -> None:
    order: list[str] = []
    events = Events()
    plan = Plan(events)
    run.meter = Meter(is_async=True, wake=plan.wake)
    window = run.meter.window()

    def ask() -> None:
        order.append(f"asked at {run.step}")
        step = run.step
        window.read_later(lambda means: order.append(f"{means} of {step} at {run.step}"))

    events.add_function("step_end", ask, priority=100, every="3st")
    events.add_function("step_end", lambda: order.append("other"), priority=50, every="4st")
    plan.start(run)
    for _ in range(5):
        run.meter.add({"loss": (torch.tensor(float(run.step)), 1)})
        take_steps(run, plan, 1)
    assert order == ["asked at 3", "{'loss': 1.0} of 3 at 4", "other"]
    assert plan.next_due == 6
    assert run.events.has_run_user_code


def test_learning_rates_set_by_hooks_are_adopted(run: EngineRun) -> None:
    def set_rate(run: EngineRun) -> None:
        run.optimizer.param_groups[0]["lr"] = 0.5

    events = Events()
    events.add_function("step_end", set_rate, priority=100, every="2st")
    plan = Plan(events)
    run.part(Updater).bind(run)
    plan.start(run)
    take_steps(run, plan, 2)
    assert run.rate.values == [0.5]
