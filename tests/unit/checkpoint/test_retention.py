"""Tests of epochal.checkpoint.checkpoint_folder."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Literal

from hypothesis import given
from hypothesis import strategies as st

from epochal.checkpoint.retention import choose_deletions
from epochal.records.folder.checkpoint_manifests import CheckpointManifest, rank_by_score

Mode = Literal["min", "max"]


def manifest(step: int, value: float | None = None, *, mode: Mode = "max", attempt: int = 0):
    metrics = {} if value is None else {"val/acc": value}
    return CheckpointManifest(
        path=Path(f"a{attempt}-step-{step}"),
        files={},
        step=step,
        attempt=attempt,
        monitor="val/acc",
        mode=mode,
        metrics=metrics,
    )


def names(manifests: list[CheckpointManifest]) -> list[int]:
    return [one.step for one in manifests]


def test_the_newest_stay() -> None:
    found = [manifest(step) for step in (30, 10, 20)]
    for keep_last, deleted in ((None, []), (2, [10]), (1, [10, 20]), (0, [10, 20])):
        assert names(choose_deletions(found, keep_last=keep_last)) == deleted, keep_last
    later = [manifest(100, attempt=0), manifest(60, attempt=1)]
    assert names(choose_deletions(later, keep_last=1)) == [100]


def test_the_best_stay_in_both_modes() -> None:
    for mode, kept in [("max", {5, 1, 4}), ("min", {5, 2, 3})]:
        values = {1: -1.0, 2: -9.0, 3: -8.0, 4: -2.0, 5: -5.0}
        found = [manifest(step, value, mode=mode) for step, value in values.items()]
        gone = set(names(choose_deletions(found, keep_last=1, keep_best=2)))
        assert set(values) - gone == kept


def test_nan_is_never_best_and_of_equal_values_the_older_is() -> None:
    found = [manifest(1, math.nan), manifest(2, -math.inf), manifest(3, None), manifest(4)]
    assert names(choose_deletions(found, keep_last=1, keep_best=1)) == [1, 3]
    found = [manifest(1, 0.5), manifest(2, 0.5), manifest(3, 0.1)]
    assert names(choose_deletions(found, keep_last=1, keep_best=1)) == [2]


def test_a_step_that_was_repeated_after_a_resume_counts_once() -> None:
    before = [manifest(step, value) for step, value in [(1, 0.7), (2, 0.9), (3, 0.8), (4, 0.5)]]
    again = [manifest(step, value, attempt=1) for step, value in [(2, 0.9), (3, 0.8)]]
    gone = choose_deletions([*before, *again], keep_last=1, keep_best=3)
    assert [(one.step, one.attempt) for one in gone] == [(2, 0), (3, 0), (4, 0)]
    assert [one.step for one in rank_by_score([*before, *again])] == [2, 3, 1, 4]
    unscored = manifest(2, attempt=1)  # preempted before its evaluation
    gone = choose_deletions([*before[:3], unscored], keep_last=2, keep_best=2)
    assert names(gone) == [1]
    gone = choose_deletions([manifest(1), manifest(2), unscored], keep_last=2)
    assert [(one.step, one.attempt) for one in gone] == [(2, 0)]


@given(
    st.lists(st.tuples(st.integers(0, 3), st.floats()), min_size=1, max_size=30),
    st.integers(0, 5),
    st.integers(0, 5),
)
def test_the_newest_stays_for_any_options(
    values: list[tuple[int, float]], keep_last: int, keep_best: int
) -> None:
    found = [manifest(i, value, attempt=attempt) for i, (attempt, value) in enumerate(values)]
    gone = choose_deletions(found, keep_last=keep_last, keep_best=keep_best)
    newest = max(found, key=lambda one: one.order)
    assert newest not in gone
    assert len(found) - len(gone) <= max(1, keep_last) + keep_best


def test_the_newest_regular_checkpoint_stays_if_requested() -> None:
    reasons = ["every", "every, end", "best, preempted", "preempted", "error"]
    made = [replace(manifest(step), reason=reason) for step, reason in enumerate(reasons)]
    assert names(choose_deletions(made, keep_last=1)) == [0, 1, 2, 3]
    assert names(choose_deletions(made, keep_last=1, keep_regular=True)) == [0, 1, 3]
    assert names(choose_deletions(made[3:], keep_last=1, keep_regular=True)) == [3]
