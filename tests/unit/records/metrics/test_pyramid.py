"""Tests of epochal.records.metrics.pyramid."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from epochal.records.metrics import pyramid
from epochal.records.metrics.pyramid import (
    CacheDamagedError,
    InMemoryCurve,
    PyramidCurve,
    PyramidRoot,
    concatenate_ranges,
    count_points,
    extend_pyramid,
    keep_last_per_step,
    merge_blocks,
    reduce_blocks,
    reduce_points_to_blocks,
    scatter_blocks,
)

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from epochal.records.metrics.pyramid import Curve

BATCHES = st.lists(
    st.lists(st.tuples(st.integers(-20, 60), st.floats()), min_size=1, max_size=40),
    min_size=1,
    max_size=5,
)


@pytest.fixture(autouse=True, scope="module")
def small_blocks() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pyramid, "BLOCK_SIZE", 3)
        yield


def write(stem: Path, batches: list[list[tuple[int, float]]]) -> tuple[PyramidRoot, InMemoryCurve]:
    """Points on disk, written in several goes, and the same in memory."""
    root, points = PyramidRoot(), []
    for batch in batches:
        points += batch
        columns = np.array([step for step, _ in batch]), np.array([value for _, value in batch])
        root = extend_pyramid(stem, root, *keep_last_per_step(*columns))
    columns = np.array([step for step, _ in points]), np.array([value for _, value in points])
    return root, InMemoryCurve(*keep_last_per_step(*columns))


def same(left: np.ndarray, right: np.ndarray) -> bool:
    return bool(np.array_equal(left, right, equal_nan=True))


def assert_same(found: Curve, expected: Curve) -> None:
    """Whatever is asked of both has one answer."""
    assert found.count == expected.count
    count = expected.count
    for one, other in zip(found.read(0, count), expected.read(0, count), strict=True):
        assert same(one, other)
    steps = np.arange(-25, 65)
    assert same(found.count_before(steps), expected.count_before(steps))
    for width in (1, 2, 5, 20, 1000):
        starts = np.arange(0, count, width)
        ends = np.minimum(starts + width, count)
        left, right = found.reduce_ranges(starts, ends), expected.reduce_ranges(starts, ends)
        for name in ("low", "high", "count"):
            assert same(left[name], right[name])
        assert same(found.steps_at(starts), expected.steps_at(starts))


@settings(max_examples=60, deadline=None)
@given(BATCHES)
def test_curves_on_disk_equal_curves_in_memory(
    tmp_path_factory: pytest.TempPathFactory, batches: list[list[tuple[int, float]]]
) -> None:
    stem = tmp_path_factory.mktemp("cache") / "0"
    root, expected = write(stem, batches)
    assert_same(PyramidCurve(stem, root), expected)


@settings(max_examples=60, deadline=None)
@given(BATCHES, st.data())
def test_any_ranges_have_exact_minimum_and_maximum(
    tmp_path_factory: pytest.TempPathFactory,
    batches: list[list[tuple[int, float]]],
    data: st.DataObject,
) -> None:
    stem = tmp_path_factory.mktemp("cache") / "0"
    root, expected = write(stem, batches)
    bounds = np.array(sorted(data.draw(st.lists(st.integers(0, root.count), min_size=2))))
    found, other = (
        curve.reduce_ranges(bounds[:-1], bounds[1:])
        for curve in (PyramidCurve(stem, root), expected)
    )
    assert all(same(found[name], other[name]) for name in ("low", "high", "count"))


def test_levels_are_added_as_points_are(tmp_path: Path) -> None:
    root = PyramidRoot()
    for step in range(40):
        root = extend_pyramid(tmp_path / "0", root, np.array([step]), np.array([-1.0 * step]))
        everything = InMemoryCurve(np.arange(step + 1), -1.0 * np.arange(step + 1))
        assert_same(PyramidCurve(tmp_path / "0", root), everything)
    assert root.sizes == [40, 14, 5, 2]


def test_parts_are_the_same_in_whatever_order_they_are_read(tmp_path: Path) -> None:
    steps = np.arange(0, 3000, 3)
    root = extend_pyramid(tmp_path / "0", PyramidRoot(), steps, np.sin(steps))
    curve, generator = PyramidCurve(tmp_path / "0", root), np.random.default_rng(1)
    for _ in range(40):
        level = int(generator.integers(len(root.sizes)))
        start, end = sorted(generator.integers(0, root.sizes[level] + 1, 2).tolist())
        found = curve.rows(level, start, end)
        whole = PyramidCurve(tmp_path / "0", root).rows(level, 0, root.sizes[level])
        assert found.tobytes() == whole[start:end].tobytes(), (level, start, end)


def test_a_range_of_steps_is_narrowed_level_by_level(tmp_path: Path) -> None:
    steps = np.arange(0, 3000, 3)
    root = extend_pyramid(tmp_path / "0", PyramidRoot(), steps, np.sin(steps))
    curve = PyramidCurve(tmp_path / "0", root)
    for first, last in ((-5, 9999), (300, 310), (0, 0), (2990, 2999)):
        for level, start, rows in curve.narrow(first, last):
            begin, size = rows["step"].tolist(), 3 * count_points(level)
            assert begin[0] == start * size
            assert begin[0] <= max(first, 0) < begin[0] + size
            assert begin[-1] <= last, (level, first, last)
            assert begin[-1] + size > min(last, 2997)
    assert not list(curve.narrow(-9, -1))


def test_an_empty_curve_can_be_queried(tmp_path: Path) -> None:
    assert_same(
        PyramidCurve(tmp_path / "0", PyramidRoot()), InMemoryCurve(np.empty(0, int), np.empty(0))
    )


def test_all_damage_is_detected(tmp_path: Path) -> None:
    root, expected = write(tmp_path / "0", [[(step, step * 0.5) for step in range(11)]])
    starts = np.array([0, 5])
    low = expected.reduce_ranges(starts, starts + 5)["low"]
    noticed = 0
    for path in sorted(tmp_path.iterdir()):
        data = path.read_bytes()
        for position in range(0, len(data), 3):
            changed = bytearray(data)
            changed[position] ^= 0x40
            path.write_bytes(changed)
            try:
                found = PyramidCurve(tmp_path / "0", root).reduce_ranges(starts, starts + 5)
                assert same(found["low"], low)  # that byte was not needed
            except CacheDamagedError:
                noticed += 1
            with pytest.raises(CacheDamagedError):  # all of them are
                read_everything(PyramidCurve(tmp_path / "0", root))
        path.write_bytes(data)
    assert noticed
    assert_same(PyramidCurve(tmp_path / "0", root), expected)


def read_everything(curve: PyramidCurve) -> None:
    for level, size in enumerate(PyramidRoot(curve.count).sizes):
        curve.rows(level, 0, size)


@pytest.mark.parametrize("name", ["0.0", "0.1", "0.2"])
def test_missing_and_short_files_are_damage(tmp_path: Path, name: str) -> None:
    root, _ = write(tmp_path / "0", [[(step, 1.0) for step in range(20)]])
    path = tmp_path / name
    data = path.read_bytes()
    path.write_bytes(data[:-1])
    with pytest.raises(CacheDamagedError):
        read_everything(PyramidCurve(tmp_path / "0", root))
    path.unlink()
    with pytest.raises(CacheDamagedError):
        read_everything(PyramidCurve(tmp_path / "0", root))


def test_a_damaged_pyramid_is_not_extended(tmp_path: Path) -> None:
    root, _ = write(tmp_path / "0", [[(step, 1.0) for step in range(20)]])
    path = tmp_path / "0.0"
    path.write_bytes(path.read_bytes()[:-8] + bytes(8))
    for step in (20, 19, 3):
        with pytest.raises(CacheDamagedError):
            extend_pyramid(tmp_path / "0", root, np.array([step]), np.array([1.0]))


def test_leftovers_of_an_interrupted_writer_are_ignored(tmp_path: Path) -> None:
    root, expected = write(tmp_path / "0", [[(step, 1.0) for step in range(9)]])
    for name in ("0.0", "0.1"):
        with (tmp_path / name).open("ab") as file:
            file.write(b"more than was said")
    assert_same(PyramidCurve(tmp_path / "0", root), expected)
    root = extend_pyramid(tmp_path / "0", root, np.array([9]), np.array([2.0]))
    assert PyramidCurve(tmp_path / "0", root).read(8, 10)[1].tolist() == [1.0, 2.0]


VALUES = st.lists(st.floats(width=32), max_size=20)


def entries_of(values: list[float]) -> np.ndarray:
    steps = np.arange(len(values))
    return reduce_points_to_blocks(steps, np.array(values, np.float64), steps, steps + 1)


@settings(max_examples=100, deadline=None)
@given(VALUES, st.lists(st.integers(0, 20), max_size=6))
def test_blocks_have_minimum_maximum_and_count(values: list[float], cuts: list[int]) -> None:
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


def test_empty_ranges_give_empty_blocks() -> None:
    found = reduce_blocks(entries_of([1.0, 2.0]), np.array([5, 5, 7]), np.array([5, 7, 7]))
    assert found["count"].tolist() == [0, 2, 0]
    (merged,) = merge_blocks(merge_blocks(found[:1], found[1:2]), found[2:])
    assert (merged["low"], merged["high"], merged["total"]) == (1.0, 2.0, 3.0)


def test_infinite_values_have_no_sum() -> None:
    (found,) = reduce_blocks(entries_of([math.inf, -math.inf]), np.array([0]), np.array([2]))
    assert (found["low"], found["high"]) == (-math.inf, math.inf)
    assert math.isnan(found["total"])
    (found,) = merge_blocks(*(entries_of([value]) for value in (math.inf, -math.inf)))
    assert math.isnan(found["total"])


def test_blocks_are_scattered() -> None:
    found = scatter_blocks(entries_of([3.0]), np.array([False, True, False]))
    assert found["count"].tolist() == [0, 1, 0]
    assert np.isnan(found["low"]).tolist() == [True, False, True]


def test_positions_of_ranges_are_concatenated() -> None:
    found = concatenate_ranges(np.array([2, 5, 9]), np.array([4, 5, 12]))
    assert found.tolist() == [2, 3, 9, 10, 11]
    assert concatenate_ranges(np.array([], int), np.array([], int)).tolist() == []


def test_the_last_value_of_a_step_counts() -> None:
    steps, values = keep_last_per_step(np.array([3, 1, 3]), np.array([1.0, 2.0, 3.0]))
    assert (steps.tolist(), values.tolist()) == ([1, 3], [2.0, 3.0])
