"""Tests of several processes that worked on one run."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from epochal.records.layout.attempts import (
    Attempt,
    add_rollback_attempt,
    begin_attempt,
    find_cause,
    read_attempts,
    select_current_points,
)

if TYPE_CHECKING:
    import pytest


def select(rows: list[tuple[int, int]], *known: Attempt) -> list[bool]:
    numbers = np.array([number for number, _ in rows], dtype=np.uint32)
    steps = np.array([step for _, step in rows], dtype=np.int64)
    return [bool(one) for one in select_current_points(numbers, steps, known)]


def test_attempts_are_read_as_written() -> None:
    first = begin_attempt(0)
    later = Attempt(
        attempt=2,
        checkpoint="step-10",
        origin=1,
        step=10,
        kept_points=0,
        overrides=("train.for=3ep",),
        changed=("code",),
    )
    assert read_attempts({"attempts": [first.to_json(), later.to_json()]})[0] == first
    (_, found) = read_attempts({"attempts": [first.to_json(), _as_json(later)]})
    assert found == later
    assert first.pid == os.getpid()


def _as_json(attempt: Attempt) -> dict[str, Any]:
    return {k: list(v) if isinstance(v, tuple) else v for k, v in attempt.to_json().items()}


def test_a_rollback_adds_an_attempt_of_the_same_process() -> None:
    first = {"attempt": 0, "command": "epochal run", "kept_points": 7, "torch": "2", "code": {}}
    facts = {"checkpoint": "step-4", "origin": 0, "step": 4}
    run = add_rollback_attempt({"tag": "x", "attempts": [first]}, 1, **facts, points=30)  # type: ignore[arg-type]
    assert run["tag"] == "x"
    assert run["attempts"][0] == first
    (_, again) = read_attempts(run)
    assert (again.attempt, again.cause, again.command) == (1, "rollback", "epochal run")
    assert (again.checkpoint, again.origin, again.step) == ("step-4", 0, 4)
    assert again.kept_points == 30
    assert run["attempts"][1]["torch"] == "2"
    unknown = add_rollback_attempt(run, 2, **facts, points=None)  # type: ignore[arg-type]
    assert read_attempts(unknown)[-1].kept_points is None
    assert len(add_rollback_attempt({"attempts": "damaged"}, 1, **facts, points=1)["attempts"]) == 1  # type: ignore[arg-type]


def test_an_attempt_has_its_cause(monkeypatch: pytest.MonkeyPatch) -> None:
    for status, is_supervised, restarts, cause in [
        ("interrupted", False, None, "resumed"),
        ("preempted", False, "0", "resumed"),
        ("lost", True, None, "retried"),
        ("failed", True, "", "retried"),
        ("preempted", True, None, "requeued"),
        ("lost", False, "2", "requeued"),
    ]:
        monkeypatch.delenv("SLURM_RESTART_COUNT", raising=False)
        if restarts is not None:
            monkeypatch.setenv("SLURM_RESTART_COUNT", restarts)
        assert find_cause(status, is_supervised=is_supervised) == cause
        assert begin_attempt(1, cause).cause == cause
        assert begin_attempt(0).cause == "started"


def test_damaged_attempts_are_left_out() -> None:
    for damaged in [None, 3, "x", [None], [{}], [{"attempt": -1}], [{"attempt": True}]]:
        assert read_attempts({"attempts": damaged}) == []
        assert read_attempts({}) == []
        assert read_attempts({"attempts": [{"attempt": 0, "pid": "x"}]}) == [Attempt(attempt=0)]


def test_points_after_the_checkpoint_are_replaced() -> None:
    rows = [(0, 5), (0, 10), (0, 10), (0, 12), (1, 10), (1, 15)]
    resumed = Attempt(attempt=1, origin=0, step=10, kept_points=2)
    kept = [True, True, False, False, True, True]
    assert select(rows, Attempt(attempt=0), resumed) == kept


def test_without_a_count_the_step_of_the_checkpoint_decides() -> None:
    rows = [(0, 5), (0, 10), (0, 12), (1, 12)]
    assert select(rows, Attempt(attempt=1, step=10)) == [True, True, False, True]


def test_a_resumed_run_has_no_points_after_its_checkpoint() -> None:
    assert select([(0, 5), (0, 9)], Attempt(attempt=1, origin=0, step=5, kept_points=1)) == [
        True,
        False,
    ]


def test_a_rollback_before_a_resume_restores_earlier_points() -> None:
    rows = [(0, 1), (0, 2), (0, 3), (1, 2), (1, 3), (2, 4)]
    attempts = [
        Attempt(attempt=1, origin=0, step=1, kept_points=1),
        Attempt(attempt=2, origin=0, step=3, kept_points=3),
    ]
    assert select(rows, *attempts) == [True, True, True, False, False, True]


def test_an_unlisted_attempt_replaces_points_from_its_first_step() -> None:
    assert select([(0, 1), (0, 2), (0, 3), (3, 2)]) == [True, False, False, True]
    assert select([]) == []


@settings(max_examples=80, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 30), st.integers(0, 6)), min_size=1, max_size=6))
def test_current_points_equal_those_of_an_uninterrupted_run(
    plan: list[tuple[int, int]],
) -> None:
    """Each attempt begins at some point of an earlier history, and adds points to it."""
    rows: list[tuple[int, int]] = []
    history: list[list[int]] = []  # of each attempt: the rows that count when it ends
    attempts = []
    for number, (place, count) in enumerate(plan):
        if number:
            origin = place % number
            past = history[origin]
            kept = past[place % (len(past) + 1) - 1] + 1 if place % (len(past) + 1) else 0
            lineage = [row for row in past if row < kept]
            attempts.append(Attempt(attempt=number, origin=origin, kept_points=kept))
        else:
            lineage = []
        for _ in range(count):
            lineage.append(len(rows))
            rows.append((number, len(lineage)))
        history.append(lineage)
    current = [row for row, is_current in enumerate(select(rows, *attempts)) if is_current]
    assert current == history[-1]
