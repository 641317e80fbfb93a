"""Tests of epochal.records.compare.metrics."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

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


def test_a_monitor_may_prefer_lower_values(tmp_path: Path) -> None:
    points = {"val/acc": {1: 0.5, 2: 0.9}}
    [score] = scores(tmp_path, points, points, monitor="-val/acc")
    assert score.best == (0.5, 0.5)


def test_best_means_over_different_steps_are_not_compared(tmp_path: Path) -> None:
    points = {name: {1: 0.5, 2: 0.9} for name in ("train/loss", "train/epoch/loss")}
    records = [
        make_run(tmp_path / period, {"log.record_every": period}, points=points)
        for period in ("5st", "10st")
    ]
    epoch, steps = compare_metrics(records)
    assert (epoch.best, steps.best) == ((0.5, 0.5), (None, None))
    [_, alike] = compare_metrics(records[:1] * 2)
    assert alike.best == (0.5, 0.5)


def test_monitored_metrics_come_first_and_training_last(tmp_path: Path) -> None:
    names = ("lr", "train/loss", "val/f1", "a", "val/acc")
    points = {name: {1: 1.0} for name in names}
    found = [score.name for score in scores(tmp_path, points, points)]
    assert found == ["val/acc", "a", "val/f1", "train/loss", "lr"]


def test_the_mode_comes_from_the_monitor_or_the_name_of_a_loss(tmp_path: Path) -> None:
    modes = {"test/acc": "max", "train/acc": "max", "val/loss": "min", "val/f1": None}
    points = {name: {1: 0.5} for name in modes}
    found = scores(tmp_path, points, points)
    assert {score.name: score.mode for score in found} == modes
    assert all((score.best == (None, None)) == (score.mode is None) for score in found)


def test_contradicting_monitors_give_no_mode(tmp_path: Path) -> None:
    points = {"val/acc": {1: 0.5}}
    one = make_run(tmp_path / "a", {"monitor": "+val/acc"}, points=points)
    other = make_run(tmp_path / "b", {"monitor": "-val/acc"}, points=points)
    [score] = compare_metrics([one, other])
    assert score.mode is None


def test_a_metric_of_one_run_is_shown(tmp_path: Path) -> None:
    [score] = scores(tmp_path, {"val/acc": {1: 0.5}}, {})
    assert score.last == (0.5, None)
    assert not score.is_same
    assert deltas(score.last) == (0.0, None)


def test_nan_equals_nan(tmp_path: Path) -> None:
    points = {"val/acc": {1: math.nan}}
    [score] = scores(tmp_path, points, points)
    assert score.is_same


def test_a_delta_is_better_or_worse_by_mode() -> None:
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
