"""Tests of epochal.cli.curves."""

from __future__ import annotations

import json
import math
from typing import TYPE_CHECKING

import pytest

from epochal.cli.curves import chart_curves
from epochal.errors import RecordError
from epochal.records import RunFolder, RunRecord, RunWriter, read_run

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def record(tmp_path: Path) -> RunRecord:
    writer = RunWriter(RunFolder(tmp_path))
    writer.write_run({"monitor": "val/acc"})
    writer.write_status("finished")
    for step in (1, 2, 3):
        writer.log({"train/acc": step / 10, "train/epoch/acc": 0.5, "lr": 0.1}, step)
    writer.log({"val/acc": 0.25, "val/loss": math.nan}, 2)
    writer.close()
    return read_run(tmp_path)


def test_the_monitored_metric_is_drawn_for_every_split(record: RunRecord) -> None:
    chart = chart_curves(record, [])
    assert list(chart.x) == [1, 2, 3]
    assert list(chart.lines) == ["train/acc", "val/acc"]
    assert chart.lines["train/acc"] == [0.1, 0.2, 0.3]
    assert [one for one in chart.lines["val/acc"] if one == one] == [0.25]


def test_names_and_patterns_choose_curves(record: RunRecord) -> None:
    assert list(chart_curves(record, ["lr", "train/*", "lr"]).lines) == [
        "lr",
        "train/acc",
        "train/epoch/acc",
    ]


def test_a_loss_is_drawn_where_nothing_is_monitored(record: RunRecord) -> None:
    (record.path / "run.json").write_text(json.dumps({}))
    assert list(chart_curves(read_run(record.path), []).lines) == ["val/loss"]


def test_an_unknown_name_suggests_the_closest_one(record: RunRecord) -> None:
    with pytest.raises(RecordError, match=r"no metric 'val/ac'\n  did you mean 'val/acc'\?"):
        chart_curves(record, ["val/ac"])


def test_a_run_without_metrics_has_nothing_to_draw(tmp_path: Path) -> None:
    RunWriter(RunFolder(tmp_path)).write_status("finished")
    with pytest.raises(RecordError, match="has no metrics to draw"):
        chart_curves(read_run(tmp_path), [])
