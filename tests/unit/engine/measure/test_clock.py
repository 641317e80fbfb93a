"""Tests of speeds, pauses and the time that is left."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from engine.parts import Hands, make_run
from epochal.engine.measure.clock import Clock
from epochal.engine.run.speed import Speed, SpeedMeter, seconds_left
from epochal.engine.run.stage_progress import TrainingLimits

if TYPE_CHECKING:
    from epochal.engine.run.engine_run import EngineRun


@pytest.fixture
def hands() -> Hands:
    return Hands()


@pytest.fixture
def run(hands: Hands) -> EngineRun:
    run = make_run()
    run.clock = Clock(hands)
    return run


def test_pauses_are_not_training_and_may_be_nested(hands: Hands) -> None:
    clock = Clock(hands)
    hands.seconds = 10
    with clock.paused():
        hands.seconds = 12
        with clock.paused():
            hands.seconds = 15
    hands.seconds = 16
    assert clock.seconds == 16
    assert clock.training_seconds == 11
    clock.start()
    assert clock.seconds == clock.training_seconds == 0


def test_the_speed_is_measured_since_the_last_read(run: EngineRun, hands: Hands) -> None:
    lap = SpeedMeter(run)
    run.step, hands.seconds = 4, 2.0
    run.feed.samples, run.feed.wait_seconds = 32, 0.4
    assert lap.read() == Speed(4, 0.5, 0.1, 16.0)
    assert lap.read() == Speed(0, 0.0, 0.0, 0.0)


def test_time_left_follows_the_speed_so_far(run: EngineRun, hands: Hands) -> None:
    assert seconds_left(run) is None
    run.limits = TrainingLimits(steps=100)
    assert seconds_left(run) is None
    run.step, hands.seconds = 10, 5.0
    assert seconds_left(run) == pytest.approx(45.0)


def test_time_left_is_limited_by_max_time(run: EngineRun, hands: Hands) -> None:
    run.limits = TrainingLimits(steps=100, seconds=20.0)
    run.step, hands.seconds = 10, 5.0
    assert seconds_left(run) == 15.0
    hands.seconds = 30.0
    assert seconds_left(run) == 0.0


def test_the_clock_continues_from_a_checkpoint() -> None:
    hands = Hands()
    clock = Clock(hands)
    clock.load_state_dict({"seconds": 100.0, "paused_seconds": 20.0})
    assert (clock.seconds, clock.training_seconds) == (100, 80)
    hands.seconds += 5
    assert clock.state_dict() == {"seconds": 105.0, "paused_seconds": 20.0}
    run = make_run()
    run.clock, run.limits = clock, TrainingLimits(steps=20)
    run.first_step, run.step = 10, 15
    assert seconds_left(run) == 5
