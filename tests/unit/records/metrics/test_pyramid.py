"""Tests of epochal.records.metrics.pyramid."""

from __future__ import annotations

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
    extend_pyramid,
    keep_last_per_step,
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
def test_what_is_asked_of_the_disk_has_the_answer_of_the_memory(
    tmp_path_factory: pytest.TempPathFactory, batches: list[list[tuple[int, float]]]
) -> None:
    stem = tmp_path_factory.mktemp("cache") / "0"
    root, expected = write(stem, batches)
    assert_same(PyramidCurve(stem, root), expected)


@settings(max_examples=60, deadline=None)
@given(BATCHES, st.data())
def test_pieces_of_any_kind_have_exact_extremes(
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


def test_levels_are_added_one_by_one(tmp_path: Path) -> None:
    root = PyramidRoot()
    for step in range(40):
        root = extend_pyramid(tmp_path / "0", root, np.array([step]), np.array([-1.0 * step]))
        everything = InMemoryCurve(np.arange(step + 1), -1.0 * np.arange(step + 1))
        assert_same(PyramidCurve(tmp_path / "0", root), everything)
    assert root.sizes == [40, 14, 5, 2]


def test_empty_curve_answers_too(tmp_path: Path) -> None:
    assert_same(
        PyramidCurve(tmp_path / "0", PyramidRoot()), InMemoryCurve(np.empty(0, int), np.empty(0))
    )


def test_no_damage_is_believed(tmp_path: Path) -> None:
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


def test_nothing_is_added_to_what_is_damaged(tmp_path: Path) -> None:
    root, _ = write(tmp_path / "0", [[(step, 1.0) for step in range(20)]])
    path = tmp_path / "0.0"
    path.write_bytes(path.read_bytes()[:-8] + bytes(8))
    for step in (20, 19, 3):
        with pytest.raises(CacheDamagedError):
            extend_pyramid(tmp_path / "0", root, np.array([step]), np.array([1.0]))


def test_what_an_interrupted_writer_left_is_cut_off_or_noticed(tmp_path: Path) -> None:
    root, expected = write(tmp_path / "0", [[(step, 1.0) for step in range(9)]])
    for name in ("0.0", "0.1"):
        with (tmp_path / name).open("ab") as file:
            file.write(b"more than was said")
    assert_same(PyramidCurve(tmp_path / "0", root), expected)
    root = extend_pyramid(tmp_path / "0", root, np.array([9]), np.array([2.0]))
    assert PyramidCurve(tmp_path / "0", root).read(8, 10)[1].tolist() == [1.0, 2.0]
