"""Tests of whether compiling pays; events are stood in for by hands on a clock."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import Any
from weakref import WeakMethod

import pytest

from engine.parts import Hands, Sums, fit, make_run
from epochal.engine import Hook, Run
from epochal.engine.capture import compiled_steps as payback
from epochal.engine.capture.compiled_steps import CompileDecision, estimate_seconds_left
from epochal.engine.measure.clock import Clock


@dataclass
class Moment:
    """An event that is over at once, or only when it was asked a few times."""

    seconds: float
    waits: int = 0

    def query(self) -> bool:
        self.waits -= 1
        return self.waits < 0

    def elapsed_time(self, later: Moment) -> float:
        return 1000 * (later.seconds - self.seconds)


class Timer(Hook):
    """Watches from the first step on; switches are noted with their steps."""

    def __init__(self, *, is_compiled: bool = False) -> None:
        self.switches: list[tuple[int, bool]] = []
        self.is_compiled = is_compiled

    def run_start(self, run: Run) -> None:
        self._run = run
        self.payback = CompileDecision(run, WeakMethod(self._switch))
        self.payback.time_steps(is_compiled=False, seconds=0.1)

    def _switch(self, is_compiling: bool) -> None:
        self.switches.append((self._run.step, is_compiling))
        if is_compiling:
            self.payback.time_steps(is_compiled=True, seconds=12.0)
        else:
            self.payback.time_steps(is_compiled=False, seconds=0.1)


@pytest.fixture
def moments(monkeypatch: pytest.MonkeyPatch) -> list[Moment]:
    """What events will say, in the order in which they are recorded."""
    waiting: list[Moment] = []
    monkeypatch.setattr(payback, "_record", lambda: waiting.pop(0))
    return waiting


def watch(timer: Timer, **options: Any) -> None:
    task = Sums(options.pop("samples", 4000))
    fit(make_run(task, hooks=(timer,), **{"for_": "500st", "eval_every": 0, **options}))


def test_a_long_run_is_compiled_and_the_saving_is_logged(
    moments: list[Moment], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    moments += [Moment(0.0), Moment(150.0), Moment(200.0), Moment(300.0)]  # 3 s, then 2 s each
    timer = Timer()
    watch(timer)
    assert timer.switches == [(71, True)]
    assert "3000.0 ms each, 21 min to go: compiling" in caplog.text
    assert "3000.00 -> 2000.00 ms per step (33 % less), paid back after 12 steps" in caplog.text


def test_a_short_run_is_not_compiled(moments: list[Moment]) -> None:
    moments += [Moment(0.0), Moment(5.0)]  # 0.1 s each
    timer = Timer()
    watch(timer)
    assert timer.switches == []
    assert moments == []


def test_compiling_that_does_not_pay_is_taken_back_once(
    moments: list[Moment], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    moments += [Moment(0.0), Moment(150.0), Moment(200.0), Moment(400.0)]
    timer = Timer()
    watch(timer)
    assert [is_compiling for _, is_compiling in timer.switches] == [True, False]
    assert "not worth it: using captured steps again" in caplog.text


def test_events_that_are_not_over_are_asked_again_later(moments: list[Moment]) -> None:
    moments += [Moment(0.0), Moment(150.0, waits=2), Moment(0.0), Moment(1.0)]
    timer = Timer()
    watch(timer)
    assert timer.switches == [(111, True)]


def test_a_deterministic_run_is_never_compiled_by_the_clock(moments: list[Moment]) -> None:
    timer = Timer()
    watch(timer, engine={"deterministic": True})
    assert timer.switches == []


def test_steps_with_an_evaluation_between_them_are_not_timed(moments: list[Moment]) -> None:
    # Those from 20 to 70 have one at 50, those from 70 to 95 have none: 2 s each.
    moments += [Moment(0.0), Moment(100.0), Moment(150.0)]
    moments += [Moment(0.0), Moment(0.0), Moment(1.0)]
    timer = Timer()
    watch(timer, eval_every="50st")
    assert timer.switches[0] == (96, True)


def test_short_epochs_are_timed_in_few_steps(moments: list[Moment]) -> None:
    moments += [Moment(0.0) for _ in range(5)] + [Moment(5.0)]
    timer = Timer()
    watch(timer, samples=40)  # 10 steps each, into which 5 fit, and not 50, 25, 12 or 6
    assert timer.switches == []
    assert moments == []


def test_timing_ends_after_some_tries(moments: list[Moment]) -> None:
    moments += [Moment(0.0) for _ in range(20)]
    timer = Timer()
    watch(timer, samples=16)
    assert timer.switches == []
    assert moments == []


@pytest.mark.parametrize(("steps", "is_timed"), [("100st", False), ("101st", True)])
def test_a_run_that_is_nearly_over_is_not_timed(
    steps: str, is_timed: bool, moments: list[Moment]
) -> None:
    moments += [Moment(0.0), Moment(0.1)]
    watch(Timer(), for_=steps)
    assert (moments == []) == is_timed


def test_time_left_is_the_smaller_of_steps_and_clock() -> None:
    left: list[float | None] = []

    class Look(Hook):
        def run_start(self, run: Run) -> None:
            run.clock = Clock(Hands())
            left.append(estimate_seconds_left(run, 2.0))

    fit(make_run(hooks=(Look(),), for_="30st"))
    fit(make_run(hooks=(Look(),), for_="30st", max_time="20s"))
    assert left == [60.0, 20.0]
