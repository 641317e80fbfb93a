"""Tests of things that are due between steps."""

from __future__ import annotations

import math
import threading
from typing import TYPE_CHECKING

import pytest

from engine.parts import Hands, Sums, make_run
from epochal.engine.interfaces.every import Every
from epochal.engine.measure.clock import Clock
from epochal.engine.run.plan import (
    END_PRIORITY,
    Alarm,
    Due,
    list_due_times,
    restore_due_times,
    run_position,
)

if TYPE_CHECKING:
    from epochal.engine.run.engine_run import EngineRun


@pytest.fixture
def run() -> EngineRun:
    run = make_run()
    run.clock = Clock(Hands())
    return run


def due(every: str) -> Due:
    return Due("test", 0, Every.parse(every), lambda run: None)


def test_the_position_is_measured_in_each_unit(run: EngineRun) -> None:
    run.step, run.epoch, run.feed.samples = 3, 2, 5
    run.clock.now.seconds = 7.0
    assert [run_position(run, unit) for unit in ("st", "ep", "sa", "s")] == [3, 2, 5, 7.0]


def test_calls_are_due_at_multiples_of_the_period(run: EngineRun) -> None:
    thing = due("5st")
    run.step = 7
    thing.set_next_time(run)
    assert thing.at == 10
    assert not thing.is_due(run)
    run.step = 10
    assert thing.is_due(run)
    thing.run_and_reschedule(run)
    assert thing.at == 15


def test_periods_in_samples_are_checked_at_the_earliest_possible_step(run: EngineRun) -> None:
    thing = due("18sa")
    thing.set_next_time(run)
    assert thing.earliest_step(run) == 5  # batches of 4: the fifth may reach 20
    run.step, run.feed.samples = 5, 17
    assert thing.earliest_step(run) == 6
    assert due("1ep").earliest_step(run) == due("1s").earliest_step(run) == math.inf
    task = Sums()
    task.train_loader = list(task.train_loader)  # batches of unknown size
    unknown = make_run(task)
    thing.set_next_time(unknown)
    assert thing.earliest_step(unknown) == 1


def test_an_alarm_rings_once_and_can_be_cancelled() -> None:
    rung = threading.Event()
    alarm = Alarm()
    alarm.set(1e9, rung.set)
    alarm.set(0.0, rung.set)
    assert rung.wait(timeout=30)
    alarm.cancel()
    alarm.cancel()


def test_next_times_are_restored_from_a_checkpoint() -> None:
    def build() -> list[Due]:
        return [
            Due("save", 10, Every(4, "st"), print),
            Due("save", 10, Every(4, "st"), print),
            Due("once", 10, Every(2, "st"), print, is_once=True),
            Due("stop", END_PRIORITY, Every(5, "st"), print, is_once=True),
        ]

    run = make_run()
    dues, others = build(), build()
    for due, at in zip(dues, (8.0, 9.0, math.inf, math.inf), strict=True):
        due.at = at
    others.append(Due("new", 10, Every(3, "st"), print))
    run.step = 7
    restore_due_times(others, list_due_times(dues), run)
    # What happened once is over, but an end that was reached is still reached.
    assert [due.at for due in others] == [8, 9, math.inf, 5, 9]
