"""Tests of things that are due between steps."""

from __future__ import annotations

import math
import threading
from typing import TYPE_CHECKING

import pytest

from engine.parts import Hands, Sums, make_run
from epochal.engine.events.due import (
    END_PRIORITY,
    Alarm,
    Due,
    list_due_times,
    restore_due_times,
    run_position,
)
from epochal.engine.interfaces.every import Every
from epochal.engine.measure.clock import Clock

if TYPE_CHECKING:
    from epochal.engine.run import Run


@pytest.fixture
def run() -> Run:
    run = make_run()
    run.clock = Clock(Hands())
    return run


def due(every: str, *, is_once: bool = False) -> Due:
    return Due("test", 0, Every.parse(every), lambda run: None, is_once=is_once)


@pytest.mark.parametrize(("unit", "expected"), [("st", 3), ("ep", 2), ("sa", 5), ("s", 7.0)])
def test_the_position_is_measured_in_each_unit(run: Run, unit: str, expected: float) -> None:
    run.step, run.epoch, run.feed.samples = 3, 2, 5
    run.clock.now.seconds = 7.0
    assert run_position(run, unit) == expected


def test_it_is_due_at_multiples_even_after_a_start_in_between(run: Run) -> None:
    thing = due("5st")
    run.step = 7
    thing.set_next_time(run)
    assert thing.at == 10
    assert not thing.is_due(run)
    run.step = 10
    assert thing.is_due(run)
    thing.run_and_reschedule(run)
    assert thing.at == 15


def test_a_missed_time_comes_once_and_not_twice(run: Run) -> None:
    thing = due("5s")
    thing.set_next_time(run)
    run.clock.now.seconds = 23.0
    assert thing.is_due(run)
    thing.run_and_reschedule(run)
    assert thing.at == 25


def test_an_end_comes_once(run: Run) -> None:
    thing = due("5st", is_once=True)
    thing.set_next_time(run)
    run.step = 5
    thing.run_and_reschedule(run)
    assert thing.at == math.inf


def test_samples_are_looked_at_when_they_can_be_reached_at_the_earliest(run: Run) -> None:
    thing = due("18sa")
    thing.set_next_time(run)
    assert thing.earliest_step(run) == 5  # batches of 4: the fifth may reach 20
    run.step, run.feed.samples = 5, 17
    assert thing.earliest_step(run) == 6


def test_samples_are_looked_at_each_step_when_batches_have_no_size() -> None:
    task = Sums()
    task.train_loader = list(task.train_loader)
    run = make_run(task)
    thing = due("18sa")
    thing.set_next_time(run)
    assert thing.earliest_step(run) == 1


def test_epochs_and_time_need_no_step(run: Run) -> None:
    assert due("1ep").earliest_step(run) == due("1s").earliest_step(run) == math.inf


def test_an_alarm_rings_once_and_can_be_cancelled() -> None:
    rung = threading.Event()
    alarm = Alarm()
    alarm.set(1e9, rung.set)
    alarm.set(0.0, rung.set)
    assert rung.wait(timeout=30)
    alarm.cancel()
    alarm.cancel()


def test_dues_go_on_from_a_list_of_times() -> None:
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
