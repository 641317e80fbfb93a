"""The time report at the end of training."""

from __future__ import annotations

import io
import logging
from typing import TYPE_CHECKING

from rich.console import Console as Screen

from epochal.engine.execute import execute
from epochal.engine.interfaces.hook import Hook
from epochal.engine.measure.clock import Clock, PhaseTimer
from epochal.engine.runner import Test as Evaluate
from epochal.engine.runner import Train
from epochal.hooks.time_report import TimeReport, draw, plain_lines
from epochal.records.metrics.time_spent import TimeShare, TimeSpent
from epochal.testing import InjectedError, execute_run, short_options, tiny_run

if TYPE_CHECKING:
    import pytest

    from epochal.engine import Run

SHARES = [
    TimeShare("steps", 75.0, 0.75),
    TimeShare("start-up", 25.0, 0.25, "mostly imports, 20.0 s"),
]


def report(
    caplog: pytest.LogCaptureFixture, *others: Hook, runner: Train | Evaluate | None = None
) -> list[logging.LogRecord]:
    run = tiny_run(TimeReport(), *others, options=short_options(for_="2ep"))
    with caplog.at_level(logging.INFO, logger="epochal.hooks.time_report"):
        execute_run(run, runner or Train())
    return [record for record in caplog.records if record.name == "epochal.hooks.time_report"]


def test_training_ends_with_a_report_of_its_parts(caplog: pytest.LogCaptureFixture) -> None:
    lines = [record.getMessage() for record in report(caplog)]
    assert lines[0].startswith("time: ")
    assert lines[0].endswith(" in all; the run is too short to find what slows it down")
    assert any(line.startswith("  steps ") for line in lines)


def test_a_resumed_run_reports_this_attempt_and_the_total(
    caplog: pytest.LogCaptureFixture,
) -> None:
    run = tiny_run(TimeReport(), options=short_options(for_="2ep"))
    run.clock = Clock(times=PhaseTimer())
    run.clock.times.before = TimeSpent({"steps": 7200.0}, killed=1)
    with caplog.at_level(logging.INFO, logger="epochal.hooks.time_report"):
        execute_run(run, Train())
    title = next(one.getMessage() for one in caplog.records if one.name.endswith("time_report"))
    assert " in this attempt, at least 2:00:0" in title
    assert title.endswith(" in all; no bottleneck found")


def test_a_terminal_gets_one_table(caplog: pytest.LogCaptureFixture) -> None:
    first, *others = (record.screen for record in report(caplog))  # type: ignore[attr-defined]
    assert first is not None
    assert others
    assert not any(others)


def test_a_run_without_steps_has_no_report(caplog: pytest.LogCaptureFixture) -> None:
    assert report(caplog, runner=Evaluate()) == []


def test_a_failed_run_has_a_report(caplog: pytest.LogCaptureFixture) -> None:
    class Broken(Hook):
        def step_end(self, run: Run) -> None:
            raise InjectedError("on purpose")

    run = tiny_run(TimeReport(), Broken(), options=short_options(for_="2ep"))
    with caplog.at_level(logging.INFO, logger="epochal.hooks.time_report"):
        result = execute(run, Train())
    assert result.times["steps"] > 0
    assert any(record.name == "epochal.hooks.time_report" for record in caplog.records)


def test_files_get_aligned_lines() -> None:
    assert plain_lines("100 s in all; fine", SHARES, "waits for the host") == [
        "time: 100 s in all; fine",
        "  steps      75%  75.0 s",
        "  start-up   25%  25.0 s  (mostly imports, 20.0 s)",
        "  device: waits for the host",
    ]


def test_terminals_get_bars() -> None:
    screen = Screen(file=io.StringIO(), width=72)
    screen.print(draw("100 s in all; fine", SHARES, "waits for the host"))
    lines = [line.rstrip() for line in screen.file.getvalue().splitlines()]  # type: ignore[attr-defined]
    assert lines == [
        "time    100 s in all; fine",
        "        steps     75%  75.0 s  ━━━━━━━━━━━━━━━━━━",
        "        start-up  25%  25.0 s  ━━━━━━  mostly imports, 20.0 s",
        "device  waits for the host",
    ]


def test_names_and_numbers_stay_whole_on_a_narrow_terminal(
    caplog: pytest.LogCaptureFixture,
) -> None:
    screen = Screen(file=io.StringIO(), width=40)

    class OnScreen(Hook):
        def setup(self, run: Run) -> None:
            run.console = screen

    screen.print(report(caplog, OnScreen())[0].screen)  # type: ignore[attr-defined]
    shown = screen.file.getvalue()  # type: ignore[attr-defined]
    assert "\n      steps " in shown
    assert "…" not in shown
    assert "━" not in shown
