"""Tests of which run is in progress."""

from __future__ import annotations

import threading

import pytest

from engine.parts import fit, make_run
from epochal.engine import Run, current_run
from epochal.errors import TaskError


def test_code_that_is_far_away_finds_the_run() -> None:
    found: list[Run] = []
    run = make_run(for_="1st")
    run.on("step_end", lambda: found.append(current_run()))
    fit(run)
    assert found == [run]
    with pytest.raises(TaskError, match="current_run: no run is in progress here"):
        current_run()


def test_a_run_may_hold_another_one_in_the_same_thread() -> None:
    inner: list[str] = []
    run = make_run(for_="2st")
    run.on("step_end", lambda: inner.append(fit(make_run(for_="1st")).status))
    assert fit(run).steps == 2
    assert inner == ["finished", "finished"]


def test_a_run_is_refused_while_another_thread_has_one_in_progress() -> None:
    refused: list[BaseException] = []

    def start() -> None:
        try:
            fit(make_run(for_="1st"))
        except TaskError as error:
            refused.append(error)

    def start_in_thread() -> None:
        thread = threading.Thread(target=start)
        thread.start()
        thread.join()

    run = make_run(for_="1st")
    run.on("step_end", start_in_thread)
    assert fit(run).steps == 1
    assert "another thread has a run in progress" in str(refused[0])
    start_in_thread()
    assert len(refused) == 1
