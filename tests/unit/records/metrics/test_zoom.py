"""Tests of epochal.records.metrics.curve_cache."""

from __future__ import annotations

import math
import zlib
from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from epochal.errors import RecordError
from epochal.records.metrics import curve_cache as columns
from epochal.records.metrics import pyramid
from epochal.records.metrics.curve_cache import zoom
from epochal.records.metrics.points import MetricWriter, get_point_dtype, read_series

if TYPE_CHECKING:
    from pathlib import Path

EDGES = st.one_of(st.none(), st.integers(-10, 310))


@pytest.fixture(scope="module")
def run_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("run")
    writer = MetricWriter(folder)
    rng = np.random.default_rng(0)
    for step in np.unique(rng.integers(0, 300, 200)).tolist():
        value = math.nan if step % 17 == 0 else float(rng.normal())
        writer.log({"loss": value, "spike": float(step == 150)}, step)
    return folder


@pytest.fixture(params=[0, 1 << 20], ids=["on disk", "in memory"])
def place(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pyramid, "BLOCK_SIZE", 4)
    monkeypatch.setattr(columns, "SMALL_FILE_BYTES", request.param)


@pytest.mark.parametrize("is_cached", [True, False])
@settings(max_examples=60, deadline=None)
@given(first=EDGES, last=EDGES, buckets=st.integers(1, 250))
def test_buckets_have_exact_minimum_and_maximum(
    run_dir: Path, is_cached: bool, first: int | None, last: int | None, buckets: int
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(columns, "SMALL_FILE_BYTES", 0 if is_cached else 1 << 20)
        found = zoom(run_dir, "loss", first, last, buckets)
    steps, values = read_series(run_dir, "loss")
    begin, end = steps[0] if first is None else first, steps[-1] if last is None else last
    inside = (steps >= begin) & (steps <= end)
    steps, values = steps[inside], values[inside]
    assert found.count.sum() == len(steps)
    assert len(found.steps) <= buckets
    bounds = [*found.steps.tolist(), math.inf]
    for i, (low, high) in enumerate(zip(found.low, found.high, strict=True)):
        own = values[(steps >= bounds[i]) & (steps < bounds[i + 1])]
        assert len(own) == found.count[i]
        numbers = own[~np.isnan(own)]
        if len(numbers):
            assert (low, high) == (numbers.min(), numbers.max())
            assert found.mean[i] == pytest.approx(numbers.mean())
        else:
            assert all(map(math.isnan, (low, high, found.mean[i])))


def test_uneven_buckets_of_long_curves_are_nearly_even_and_exact(tmp_path: Path) -> None:
    """They end with whole entries of the pyramid, so the first and last may have a few more."""
    count = 20_000
    rng = np.random.default_rng(0)
    rows = np.zeros(count, get_point_dtype())
    rows["step"] = np.cumsum(rng.integers(1, 5, count))
    rows["value"] = rng.normal(size=count)
    rows["value"][7_777] = 99.0
    rows["value"][100:400] = math.nan
    data = rows.view(np.uint8).reshape(count, -1)
    rows["crc"] = [zlib.crc32(row[:32].tobytes()) for row in data]
    (tmp_path / "metrics.bin").write_bytes(rows.tobytes())
    (tmp_path / "series.jsonl").write_text('{"id":0,"name":"loss"}\n')
    steps, values = rows["step"].astype(np.int64), rows["value"]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pyramid, "BLOCK_SIZE", 8)
        patch.setattr(columns, "SMALL_FILE_BYTES", 0)
        for first, last, buckets in [
            (None, None, 7),
            (None, None, 40),
            (5_000, 30_000, 9),
            (0, 9, 3),
        ]:
            found = zoom(tmp_path, "loss", first, last, buckets, is_even=False)
            exact = zoom(tmp_path, "loss", first, last, buckets)
            assert len(found.steps) <= buckets
            extra = found.count.sum() - exact.count.sum()
            assert 0 <= extra <= exact.count.max() / 2, (first, last, buckets)
            start = int(np.searchsorted(steps, found.steps[0]))
            for own, low, high in zip(found.count, found.low, found.high, strict=True):
                inside = values[start : start + own]
                assert (low, high) == (np.nanmin(inside), np.nanmax(inside))
                start += int(own)
        assert zoom(tmp_path, "loss", buckets=5, is_even=False).high.max() == 99.0


@pytest.mark.usefixtures("place")
def test_buckets_cover_equally_many_steps(tmp_path: Path) -> None:
    writer = MetricWriter(tmp_path)
    for step in [*range(10), 50, 51, 98, 99]:
        writer.log({"a": float(step)}, step)
    found = zoom(tmp_path, "a", 0, 99, 10)
    assert found.steps.tolist() == [0, 50, 98]
    assert found.count.tolist() == [10, 2, 2]
    assert found.low.tolist() == [0.0, 50.0, 98.0]
    assert found.high.tolist() == [9.0, 51.0, 99.0]
    assert found.mean.tolist() == [4.5, 50.5, 98.5]


@pytest.mark.usefixtures("place")
def test_few_points_are_shown_as_they_are(run_dir: Path) -> None:
    found = zoom(run_dir, "loss", 100, 120, 50)
    steps, values = read_series(run_dir, "loss")
    inside = (steps >= 100) & (steps <= 120)
    assert found.steps.tolist() == steps[inside].tolist()
    for column in (found.low, found.high, found.mean):
        assert np.array_equal(column, values[inside], equal_nan=True)


@pytest.mark.usefixtures("place")
def test_a_range_outside_of_the_curve_is_empty(run_dir: Path) -> None:
    for first, last in ((400, 500), (-9, -5), (20, 10)):
        assert len(zoom(run_dir, "loss", first, last).steps) == 0


@pytest.mark.usefixtures("place")
def test_steps_may_have_64_bits(tmp_path: Path) -> None:
    writer = MetricWriter(tmp_path)
    for step in (-(2**63), -1, 0, 1, 2**63 - 1):
        writer.log({"a": 1.0}, step)
    assert zoom(tmp_path, "a", buckets=2).count.tolist() == [2, 3]
    assert zoom(tmp_path, "a", -(2**63), 2**63 - 1, 2).count.tolist() == [2, 3]
    assert zoom(tmp_path, "a", -(10**30), 10**30, 2).count.tolist() == [2, 3]
    assert zoom(tmp_path, "a", -(10**30), -(10**20), 2).count.tolist() == []
    assert zoom(tmp_path, "a", 0, 2**63 - 1, 9).count.tolist() == [1, 1, 1]


@pytest.mark.usefixtures("place")
def test_unknown_metrics_and_invalid_numbers_are_refused(run_dir: Path) -> None:
    with pytest.raises(RecordError, match=r"los: no such metric\n  did you mean 'loss'\?"):
        zoom(run_dir, "los")
    with pytest.raises(ValueError, match="buckets: must be at least 1, got 0"):
        zoom(run_dir, "loss", buckets=0)
