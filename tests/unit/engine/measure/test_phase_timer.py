"""Tests of where the time goes."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from engine.parts import Hands, fit, make_run
from epochal.engine import Hook, Run
from epochal.engine.measure.clock import Clock, PhaseTimer
from epochal.engine.run.speed import read_device_time, read_times
from epochal.records.metrics.time_spent import TimeSpent


@pytest.fixture
def hands() -> Hands:
    return Hands()


def timed_run(hands: Hands, *hooks: object, **options: Any) -> Run:
    run = make_run(hooks=hooks, **options)
    run.clock = Clock(hands)
    return run


class Slow(Hook):
    """Takes so many seconds at each step, and at each evaluation."""

    def __init__(self, hands: Hands, *, step: float = 0.0, eval: float = 0.0) -> None:
        self.hands, self.step, self.eval = hands, step, eval

    def step_end(self, run: Run) -> None:
        self.hands.seconds += self.step

    def eval_end(self, run: Run, split: str, metrics: Any) -> None:
        self.hands.seconds += self.eval


def test_time_counts_into_the_open_part(hands: Hands) -> None:
    times = PhaseTimer(hands)
    hands.seconds = 2
    with times.training():
        hands.seconds = 5
        with times.measuring("evaluation"):
            hands.seconds = 12
        hands.seconds = 13
    hands.seconds = 13.5
    assert times.read() == {"evaluation": 7, "steps": 4, "start-up": 2, "other": 0.5}


def test_added_seconds_are_moved_from_the_open_part(hands: Hands) -> None:
    times = PhaseTimer(hands)
    with times.training():
        hands.seconds = 5
        times.add("capture", 2)
    assert times.read() == {"steps": 3, "capture": 2}


def test_waits_for_data_are_not_steps(hands: Hands) -> None:
    times = PhaseTimer(hands)
    with times.training():
        hands.seconds = 5
    assert times.read((2.0, 0.0)) == {"steps": 3, "data wait": 2}
    assert times.read() == {"steps": 3, "data wait": 2}
    assert times.read((2.0, 1.5)) == {"steps": 3, "start-up/first batch": 1.5, "data wait": 0.5}


def test_the_start_up_may_begin_before_the_timer(hands: Hands) -> None:
    hands.seconds = 10
    times = PhaseTimer(hands, begun=4, part="start-up/imports")
    times.switch("start-up/checks")
    hands.seconds = 11
    times.switch("start-up/building")
    hands.seconds = 13
    with times.training():
        hands.seconds = 20
    hands.seconds = 21
    parts = {"steps": 7, "start-up/imports": 6, "start-up/building": 2, "start-up/checks": 1}
    assert times.read() == parts | {"other": 1}


def test_a_run_adds_to_the_times_of_earlier_processes(hands: Hands) -> None:
    run = timed_run(hands, Slow(hands, step=2), for_="3st", sanity_batches=0)
    run.clock = Clock(hands, PhaseTimer(hands))
    run.clock.times.before = TimeSpent({"steps": 10.0, "hooks/Slow": 1.0}, 4.0, 1)
    result = fit(run)
    assert result.times == {"steps": 10, "hooks/Slow": 7}
    assert (result.seconds, result.redone_seconds, result.killed) == (17, 4, 1)


def test_time_after_the_restored_state_counts_as_redone(hands: Hands) -> None:
    times = PhaseTimer(hands)
    times.before = TimeSpent({"steps": 10.0}, redone_seconds=1.0)
    hands.seconds = 3
    at = times.read_spent()
    hands.seconds = 8
    times.count_redone(at)
    assert times.read_spent().redone_seconds == 6  # 1 before that state, and 5 since
    hands.seconds = 10
    times.count_redone(at)
    assert times.read_spent() == TimeSpent({"steps": 10.0, "start-up": 10.0}, redone_seconds=8.0)


def test_an_exception_closes_a_part(hands: Hands) -> None:
    times = PhaseTimer(hands)

    def save() -> None:
        hands.seconds = 1
        raise ValueError("oh")

    with pytest.raises(ValueError, match="oh"), times.measuring("saving"):
        save()
    hands.seconds = 3
    assert times.read() == {"start-up": 2, "saving": 1}


def test_the_parts_sum_to_the_duration_of_the_run() -> None:
    run = make_run(hooks=(Slow(Hands()),), for_="3ep", eval_every="1ep")
    looks = itertools.count()
    run.clock = Clock(lambda: float(next(looks)))  # a second passes with each look
    result = fit(run)
    assert sum(result.times.values()) == pytest.approx(result.seconds, abs=2)
    assert result.seconds > 50
    assert {"start-up", "steps", "data wait", "evaluation", "hooks/Slow"} <= set(result.times)


def test_the_time_of_hooks_is_counted_by_name(hands: Hands) -> None:
    run = timed_run(hands, Slow(hands, step=2), for_="3st", sanity_batches=0)
    assert fit(run).times == {"hooks/Slow": 6}


def test_a_hook_inside_an_evaluation_is_not_counted_twice(hands: Hands) -> None:
    run = timed_run(hands, Slow(hands, eval=3), for_="5st", eval_every="5st", sanity_batches=0)
    measure = run.task.batch_metric

    def slow_metric(out: Any, batch: Any) -> Any:
        hands.seconds += 1 if run.split == "val" else 0
        return measure(out, batch)

    run.task.batch_metric = slow_metric
    assert fit(run).times == {"hooks/Slow": 3, "evaluation": 2}


def test_evaluations_and_functions_inside_hooks_count_separately(hands: Hands) -> None:
    class Asking(Hook):
        def step_end(self, run: Run) -> None:
            hands.seconds += 1
            run.evaluate("val")
            hands.seconds += 1

    run = timed_run(hands, Asking(), for_="1st", eval_every="0", sanity_batches=0)
    run.on("batch_end", lambda split: setattr(hands, "seconds", hands.seconds + (split == "val")))
    times = fit(run).times
    assert times == {"hooks/Asking": 2, "hooks/<lambda>": 2}


def test_a_hook_may_count_as_another_part(hands: Hands) -> None:
    class Keeper(Slow):
        counts_as = "saving"

    run = timed_run(hands, Keeper(hands, step=2), for_="1st", sanity_batches=0)
    assert fit(run).times == {"saving": 2}


def test_the_times_of_a_released_run_can_be_read() -> None:
    run = make_run(for_="2ep")
    result = fit(run)
    assert read_times(run)["data wait"] == result.times["data wait"]


def test_device_times_say_whether_steps_are_captured() -> None:
    class Seen:
        def read(self) -> dict[str, float]:
            return {"samples": 3.0}

    run = make_run()
    assert read_device_time(run) == {}
    run.device_time = Seen()  # type: ignore[assignment]  # has the only method that is used
    for step, captured in (("eager", {}), ("graph", {"captured": 1.0})):
        run.choices["step"] = step
        assert read_device_time(run) == {"samples": 3.0} | captured
