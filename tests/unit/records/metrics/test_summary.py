"""Tests of epochal.records.metrics.summary."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from epochal.records.metrics.points import MetricWriter, read_metric_points
from epochal.records.metrics.summary import SeriesSummary, summarise_series

if TYPE_CHECKING:
    from pathlib import Path

    import pytest


def test_each_metric_has_five_numbers(tmp_path: Path) -> None:
    writer = MetricWriter(tmp_path)
    for step, loss in enumerate([3.0, 1.0, 2.0]):
        writer.log({"loss": loss, "acc": -loss}, step * 10)
    writer.log({"val/acc": 0.5}, 20)
    assert summarise_series(tmp_path) == {
        "loss": SeriesSummary(last=2.0, low=1.0, high=3.0, last_step=20, count=3),
        "acc": SeriesSummary(last=-2.0, low=-3.0, high=-1.0, last_step=20, count=3),
        "val/acc": SeriesSummary(last=0.5, low=0.5, high=0.5, last_step=20, count=1),
    }


def test_means_over_steps_and_over_epochs_are_separate_metrics(tmp_path: Path) -> None:
    writer = MetricWriter(tmp_path)
    writer.log({"train/loss": 2.0, "train/acc": 0.5, "lr": 0.1}, 10)
    assert summarise_series(tmp_path)["train/loss"].last == 2.0
    writer.log({"train/loss": 1.0}, 20)
    writer.log({"train/epoch/loss": 1.5}, 20)
    found = summarise_series(tmp_path)
    assert found["train/loss"] == SeriesSummary(last=1.0, low=1.0, high=2.0, last_step=20, count=2)
    assert (found["train/epoch/loss"].last, found["train/acc"].last, found["lr"].last) == (
        1.5,
        0.5,
        0.1,
    )


def test_run_without_points_has_no_summaries(tmp_path: Path) -> None:
    assert summarise_series(tmp_path) == {}
    (tmp_path / "metrics.bin").write_bytes(bytes(36))
    assert summarise_series(tmp_path) == {}


def test_minimum_and_maximum_are_nan_only_if_all_values_are(tmp_path: Path) -> None:
    writer = MetricWriter(tmp_path)
    writer.log({"a": 1.0, "b": math.nan}, 1)
    writer.log({"a": math.nan}, 2)
    found = summarise_series(tmp_path)
    assert (found["a"].low, found["a"].high, found["a"].count) == (1.0, 1.0, 2)
    assert math.isnan(found["a"].last)
    assert math.isnan(found["b"].low)
    assert math.isnan(found["b"].high)


def test_points_without_a_name_are_left_out(tmp_path: Path) -> None:
    MetricWriter(tmp_path).log({"a": 1.0, "b": 2.0}, 1)
    path = tmp_path / "series.jsonl"
    path.write_bytes(path.read_bytes().replace(b'"a"', b'"x"'))
    assert list(summarise_series(tmp_path)) == ["b"]


@settings(max_examples=40, deadline=None)
@given(
    st.lists(
        st.tuples(
            st.sampled_from("abc"),
            st.integers(-5, 15),
            st.floats(allow_nan=False),
            st.integers(0, 2),
        ),
        min_size=1,
        max_size=30,
    )
)
def test_summaries_agree_with_the_series(
    tmp_path_factory: pytest.TempPathFactory, points: list[tuple[str, int, float, int]]
) -> None:
    folder = tmp_path_factory.mktemp("run")
    writer = MetricWriter(folder)
    for name, step, value, attempt in sorted(points, key=lambda point: point[3]):
        writer.log({name: value}, step, attempt=attempt)
    loaded, found = read_metric_points(folder), summarise_series(folder)
    for name in set(loaded.names.values()):
        steps, values = loaded.series(name)
        assert (name in found) == bool(len(steps))
        if name in found:
            expected = (values[-1], np.min(values), np.max(values), steps[-1], len(steps))
            one = found[name]
            assert (one.last, one.low, one.high, one.last_step, one.count) == expected
