"""Tests of epochal.records.metrics.pyramid."""

from __future__ import annotations

import math

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from epochal.records.metrics.pyramid import (
    concatenate_ranges,
    keep_last_per_step,
    merge_blocks,
    reduce_blocks,
    reduce_points_to_blocks,
    scatter_blocks,
)

VALUES = st.lists(st.floats(width=32), max_size=20)


def entries_of(values: list[float]) -> np.ndarray:
    steps = np.arange(len(values))
    return reduce_points_to_blocks(steps, np.array(values, np.float64), steps, steps + 1)


@settings(max_examples=100, deadline=None)
@given(VALUES, st.lists(st.integers(0, 20), max_size=6))
def test_pieces_have_the_extremes_of_their_values(values: list[float], cuts: list[int]) -> None:
    bounds = np.array(sorted({0, len(values), *(cut for cut in cuts if cut < len(values))}))
    found = reduce_blocks(entries_of(values), bounds[:-1], bounds[1:])
    points = (np.arange(len(values)), np.array(values, np.float64))
    at_once = reduce_points_to_blocks(*points, bounds[:-1], bounds[1:])
    for name in ("step", "low", "high", "count"):
        np.testing.assert_array_equal(at_once[name], found[name])
    for entry, start, end in zip(found, bounds[:-1], bounds[1:], strict=True):
        numbers = [value for value in values[start:end] if not math.isnan(value)]
        assert entry["count"] == len(numbers)
        assert entry["step"] == start
        if numbers:
            assert (entry["low"], entry["high"]) == (min(numbers), max(numbers))
        else:
            assert math.isnan(entry["low"])
            assert math.isnan(entry["high"])


def test_empty_pieces_change_nothing() -> None:
    found = reduce_blocks(entries_of([1.0, 2.0]), np.array([5, 5, 7]), np.array([5, 7, 7]))
    assert found["count"].tolist() == [0, 2, 0]
    (merged,) = merge_blocks(found[:1], found[1:2], found[2:])
    assert (merged["low"], merged["high"], merged["total"]) == (1.0, 2.0, 3.0)


def test_infinite_values_are_extremes_without_a_sum() -> None:
    (found,) = reduce_blocks(entries_of([math.inf, -math.inf]), np.array([0]), np.array([2]))
    assert (found["low"], found["high"]) == (-math.inf, math.inf)
    assert math.isnan(found["total"])
    (found,) = merge_blocks(*(entries_of([value]) for value in (math.inf, -math.inf)))
    assert math.isnan(found["total"])


def test_entries_are_spread_over_a_longer_row() -> None:
    found = scatter_blocks(entries_of([3.0]), np.array([False, True, False]))
    assert found["count"].tolist() == [0, 1, 0]
    assert np.isnan(found["low"]).tolist() == [True, False, True]


def test_positions_of_pieces_follow_each_other() -> None:
    assert concatenate_ranges(np.array([2, 5, 9]), np.array([4, 5, 12])).tolist() == [
        2,
        3,
        9,
        10,
        11,
    ]
    assert concatenate_ranges(np.array([], int), np.array([], int)).tolist() == []


def test_last_word_for_a_step_counts() -> None:
    steps, values = keep_last_per_step(np.array([3, 1, 3]), np.array([1.0, 2.0, 3.0]))
    assert (steps.tolist(), values.tolist()) == ([1, 3], [2.0, 3.0])
