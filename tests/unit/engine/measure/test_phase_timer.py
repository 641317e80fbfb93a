"""Tests of where the time goes."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from engine.parts import Hands, fit, make_run
from epochal.engine import Hook, Run
from epochal.engine.measure.clock import Clock
from epochal.engine.measure.phase_timer import PhaseTimer, read_device_time, read_times
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


def test_each_moment_counts_into_the_part_that_is_open(hands: Hands) -> None:
    times = PhaseTimer(hands)
    hands.seconds = 2
    with times.training():
        hands.seconds = 5
        with times.measuring("evaluation"):
            hands.seconds = 12
        hands.seconds = 13
    hands.seconds = 13.5
    assert times.read() == {"evaluation": 7, "steps": 4, "start-up": 2, "other": 0.5}


def test_what_is_added_is_taken_from_the_part_that_is_open(hands: Hands) -> None:
    times = PhaseTimer(hands)
    with times.training():
        hands.seconds = 5
        times.add("capture", 2)
    assert times.read() == {"steps": 3, "capture": 2}


def test_waiting_for_data_is_no_work(hands: Hands) -> None:
    times = PhaseTimer(hands)
    with times.training():
        hands.seconds = 5
    assert times.read((2.0, 0.0)) == {"steps": 3, "data wait": 2}
    assert times.read() == {"steps": 3, "data wait": 2}


def test_waiting_for_the_very_first_batch_is_part_of_the_start_up(hands: Hands) -> None:
    times = PhaseTimer(hands)
    with times.training():
        hands.seconds = 5
    assert times.read((2.0, 1.5)) == {"steps": 3, "start-up/first batch": 1.5, "data wait": 0.5}


def test_the_start_up_begins_with_whoever_waits_for_it(hands: Hands) -> None:
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


def test_a_run_adds_to_what_its_earlier_processes_took(hands: Hands) -> None:
    run = timed_run(hands, Slow(hands, step=2), for_="3st", sanity_batches=0)
    run.clock = Clock(hands, PhaseTimer(hands))
    run.clock.times.before = TimeSpent({"steps": 10.0, "hooks/Slow": 1.0}, 4.0, 1)
    result = fit(run)
    assert result.times == {"steps": 10, "hooks/Slow": 7}
    assert (result.seconds, result.redone_seconds, result.killed) == (17, 4, 1)


def test_what_came_after_the_state_that_a_run_goes_back_to_does_not_count(hands: Hands) -> None:
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


def test_an_open_part_is_counted_so_far_when_it_is_read(hands: Hands) -> None:
    times = PhaseTimer(hands)
    with times.training():
        hands.seconds = 5
        assert times.read() == {"steps": 5}
        hands.seconds = 6
    assert times.read() == {"steps": 6}


def test_a_part_closes_when_an_exception_passes(hands: Hands) -> None:
    times = PhaseTimer(hands)

    def save() -> None:
        hands.seconds = 1
        raise ValueError("oh")

    with pytest.raises(ValueError, match="oh"), times.measuring("saving"):
        save()
    hands.seconds = 3
    assert times.read() == {"start-up": 2, "saving": 1}


def test_the_parts_sum_to_the_whole_run() -> None:
    run = make_run(hooks=(Slow(Hands()),), for_="3ep", eval_every="1ep")
    looks = itertools.count()
    run.clock = Clock(lambda: float(next(looks)))  # a second passes with each look
    result = fit(run)
    assert sum(result.times.values()) == pytest.approx(result.seconds, abs=2)
    assert result.seconds > 50
    assert {"start-up", "steps", "data wait", "evaluation", "hooks/Slow"} <= set(result.times)


def test_each_hook_counts_by_its_name(hands: Hands) -> None:
    run = timed_run(hands, Slow(hands, step=2), for_="3st", sanity_batches=0)
    assert fit(run).times == {"hooks/Slow": 6}


def test_a_hook_within_an_evaluation_is_not_counted_twice(hands: Hands) -> None:
    run = timed_run(hands, Slow(hands, eval=3), for_="5st", eval_every="5st", sanity_batches=0)
    measure = run.task.batch_metric

    def slow_metric(out: Any, batch: Any) -> Any:
        hands.seconds += 1 if run.split == "val" else 0
        return measure(out, batch)

    run.task.batch_metric = slow_metric
    assert fit(run).times == {"hooks/Slow": 3, "evaluation": 2}


def test_an_evaluation_that_a_hook_asks_for_counts_as_evaluation(hands: Hands) -> None:
    class Asking(Hook):
        def step_end(self, run: Run) -> None:
            hands.seconds += 1
            run.evaluate("val")
            hands.seconds += 1

    run = timed_run(hands, Asking(), for_="1st", eval_every="0", sanity_batches=0)
    run.on("batch_end", lambda split: setattr(hands, "seconds", hands.seconds + (split == "val")))
    times = fit(run).times
    assert times == {"hooks/Asking": 2, "hooks/<lambda>": 2}


def test_a_hook_may_say_what_its_time_counts_as(hands: Hands) -> None:
    class Keeper(Slow):
        counts_as = "saving"

    run = timed_run(hands, Keeper(hands, step=2), for_="1st", sanity_batches=0)
    assert fit(run).times == {"saving": 2}


def test_a_function_goes_by_its_name(hands: Hands) -> None:
    def wait(run: Run) -> None:
        hands.seconds += 1

    run = timed_run(hands, for_="1st", sanity_batches=0)
    run.on("step_end", wait)
    assert fit(run).times == {"hooks/wait": 1}


def test_the_times_of_a_run_that_is_over_can_still_be_read() -> None:
    run = make_run(for_="2ep")
    result = fit(run)
    assert read_times(run)["data wait"] == result.times["data wait"]


@pytest.mark.parametrize(("step", "is_told"), [("eager", False), ("graph", True)])
def test_whether_the_device_got_whole_steps_is_told(step: str, is_told: bool) -> None:
    class Seen:
        def read(self) -> dict[str, float]:
            return {"samples": 3.0}

    run = make_run()
    assert read_device_time(run) == {}
    run.choices["step"] = step
    run.device_time = Seen()  # type: ignore[assignment]  # it can be read, which is enough here
    assert read_device_time(run) == {"samples": 3.0} | ({"captured": 1.0} if is_told else {})
