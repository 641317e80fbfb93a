"""Tests of epochal.records.compare.metrics."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import pytest

from comparing import make_run
from epochal.records.compare.metrics import MetricComparison, compare_metrics, deltas

if TYPE_CHECKING:
    from pathlib import Path


def scores(
    tmp_path: Path, *points: dict[str, dict[int, float]], **config: Any
) -> list[MetricComparison]:
    return compare_metrics(
        [make_run(tmp_path / str(i), config, points=one) for i, one in enumerate(points)]
    )


def test_last_and_best_follow_the_monitor(tmp_path: Path) -> None:
    one = {"val/acc": {1: 0.5, 2: 0.9, 3: 0.8}}
    other = {"val/acc": {1: 0.6, 2: 0.7}}
    [score] = scores(tmp_path, one, other)
    assert (score.mode, score.last, score.best) == ("max", (0.8, 0.7), (0.9, 0.7))


def test_smaller_is_better_where_the_monitor_says_so(tmp_path: Path) -> None:
    points = {"val/acc": {1: 0.5, 2: 0.9}}
    [score] = scores(tmp_path, points, points, monitor="-val/acc")
    assert score.best == (0.5, 0.5)


def test_the_best_of_means_over_other_steps_is_not_compared(tmp_path: Path) -> None:
    points = {name: {1: 0.5, 2: 0.9} for name in ("train/loss", "train/epoch/loss")}
    records = [
        make_run(tmp_path / period, {"log.record_every": period}, points=points)
        for period in ("5st", "10st")
    ]
    epoch, steps = compare_metrics(records)
    assert (epoch.best, steps.best) == ((0.5, 0.5), (None, None))
    [_, alike] = compare_metrics(records[:1] * 2)
    assert alike.best == (0.5, 0.5)


def test_what_decides_comes_first_and_training_and_rates_last(tmp_path: Path) -> None:
    names = ("lr", "train/loss", "val/f1", "a", "val/acc")
    points = {name: {1: 1.0} for name in names}
    found = [score.name for score in scores(tmp_path, points, points)]
    assert found == ["val/acc", "a", "val/f1", "train/loss", "lr"]


@pytest.mark.parametrize(
    ("name", "mode"),
    [("test/acc", "max"), ("train/acc", "max"), ("val/loss", "min"), ("val/f1", None)],
)
def test_direction_is_known_from_the_monitor_or_of_losses(
    tmp_path: Path, name: str, mode: str | None
) -> None:
    [score] = scores(tmp_path, {name: {1: 0.5}}, {name: {1: 0.5}})
    assert score.mode == mode
    assert (score.best == (None, None)) == (mode is None)


def test_runs_that_contradict_each_other_have_no_direction(tmp_path: Path) -> None:
    points = {"val/acc": {1: 0.5}}
    one = make_run(tmp_path / "a", {"monitor": "+val/acc"}, points=points)
    other = make_run(tmp_path / "b", {"monitor": "-val/acc"}, points=points)
    [score] = compare_metrics([one, other])
    assert score.mode is None


def test_metric_that_only_one_run_has_is_shown(tmp_path: Path) -> None:
    [score] = scores(tmp_path, {"val/acc": {1: 0.5}}, {})
    assert score.last == (0.5, None)
    assert not score.is_same
    assert deltas(score.last) == (0.0, None)


def test_equal_metrics_are_the_same_also_when_not_numbers(tmp_path: Path) -> None:
    points = {"val/acc": {1: math.nan}}
    [score] = scores(tmp_path, points, points)
    assert score.is_same


def test_delta_is_judged_by_direction() -> None:
    for mode, delta, verdict in [
        ("max", 0.1, True),
        ("max", -0.1, False),
        ("min", -0.1, True),
        ("min", 0.1, False),
        ("min", 0.0, None),
        ("min", math.nan, None),
        ("min", None, None),
        (None, 0.1, None),
    ]:
        assert MetricComparison("x", mode, (), ()).is_better(delta) is verdict


def test_deltas_are_part_of_the_json(tmp_path: Path) -> None:
    [score] = scores(tmp_path, {"val/acc": {1: 0.5}}, {"val/acc": {1: 0.75}})
    assert score.to_json()["delta"] == {"last": (0.0, 0.25), "best": (0.0, 0.25)}
