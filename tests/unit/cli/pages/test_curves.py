"""Tests of epochal.cli.verbs.show."""

from __future__ import annotations

import json
import math
from contextlib import closing
from typing import TYPE_CHECKING

import pytest

from epochal import durable
from epochal.cli.verbs.show import chart_curves, chart_system_figures
from epochal.errors import ConfigError, RecordError
from epochal.records import RunFolder, RunRecord, RunWriter, read_run

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def record(tmp_path: Path) -> RunRecord:
    return make(tmp_path)


def make(folder: Path) -> RunRecord:
    folder.mkdir(exist_ok=True)
    writer = RunWriter(RunFolder(folder))
    writer.write_run({"monitor": "val/acc"})
    writer.write_status("finished")
    for step in (1, 2, 3):
        writer.log({"train/acc": step / 10, "train/epoch/acc": 0.5, "lr": 0.1}, step)
    writer.log({"val/acc": 0.25, "val/loss": math.nan}, 2)
    writer.close()
    return read_run(folder)


def write_system_figures(folder: Path, *times: float) -> None:
    samples = [{"time": 1e9 + one, "system/cpu": one, "system/gpu0/use": 7} for one in times]
    lines = map(durable.encode_line, samples)
    (folder / "system.jsonl").write_bytes(b"".join(lines))


def test_system_figures_are_plotted_over_time(record: RunRecord) -> None:
    for times, unit, last in [
        ((0, 0.5), "seconds", 0.5),
        ((0, 60), "seconds", 60),
        ((0, 600), "minutes", 10),
        ((0, 36_000), "hours", 10),
    ]:
        write_system_figures(record.path, *times)
        chart = chart_system_figures([read_run(record.path)], ["system/*"])
        assert (chart.x_name, list(chart.x)) == (unit, [0, last]), unit
        assert chart.lines == {"system/cpu": list(times), "system/gpu0/use": [7, 7]}, unit


def test_system_figures_of_several_runs_share_a_chart(tmp_path: Path) -> None:
    records = [make(tmp_path / name) for name in ("first", "second")]
    for number, one in enumerate(records):
        write_system_figures(one.path, number, number + 10)
    lines = chart_system_figures(records, ["system/cpu"]).lines
    assert sorted(map(tuple, lines.values())) == [(0, 10), (1, 11)]


def test_unknown_system_figures_and_mixed_axes_are_refused(record: RunRecord) -> None:
    for wanted, error, message in [
        (["system/cpu"], RecordError, "no metric 'system/cpu'\n  it has none"),
        (["system/cpu", "val/acc"], ConfigError, "'val/acc' is plotted over steps"),
    ]:
        with pytest.raises(error, match=message):
            chart_system_figures([record], wanted)


def test_monitored_metric_is_plotted_for_every_split(record: RunRecord) -> None:
    chart = chart_curves([record], [])
    assert list(chart.x) == [1, 2, 3]
    assert list(chart.lines) == ["train/acc", "val/acc"]
    assert chart.lines["train/acc"] == [0.1, 0.2, 0.3]
    assert chart.lines["val/acc"] == [None, 0.25, None]
    assert not chart.is_log_y


def test_names_and_patterns_choose_curves(record: RunRecord) -> None:
    assert list(chart_curves([record], ["lr", "train/*", "lr"]).lines) == [
        "lr",
        "train/acc",
        "train/epoch/acc",
    ]


def test_loss_is_plotted_if_nothing_is_monitored(record: RunRecord) -> None:
    (record.path / "run.json").write_text(json.dumps({}))
    assert list(chart_curves([read_run(record.path)], []).lines) == ["val/loss"]


def test_an_unknown_name_suggests_the_closest_one(record: RunRecord) -> None:
    with pytest.raises(RecordError, match=r"no metric 'val/ac'\n  did you mean 'val/acc'\?"):
        chart_curves([record], ["val/ac"])


def test_run_without_metrics_is_an_error(tmp_path: Path) -> None:
    RunWriter(RunFolder(tmp_path)).write_status("finished")
    with pytest.raises(RecordError, match="has no metrics to plot"):
        chart_curves([read_run(tmp_path)], [])


def test_several_runs_have_a_line_each(tmp_path: Path) -> None:
    records = [make(tmp_path / name) for name in ("20261115-204751-c8fe", "20261115-204806-e0e2")]
    tag = records[0].summary.tag
    chart = chart_curves(records, [])
    assert list(chart.lines) == [f"{tag} c8fe", f"{tag} e0e2"]
    assert chart.title == "2 runs: val/acc"
    chart = chart_curves(records, ["lr", "val/acc"])
    assert list(chart.lines) == [
        f"{tag} {run} {name}" for run in ("c8fe", "e0e2") for name in ("lr", "val/acc")
    ]


def test_runs_with_equal_endings_have_full_ids(tmp_path: Path) -> None:
    names = ["20261115-204751-c8fe", "20261115-204806-c8fe"]
    assert list(chart_curves([make(tmp_path / name) for name in names], []).lines) == names


def test_values_over_decades_have_a_logarithmic_axis(tmp_path: Path) -> None:
    writer = RunWriter(RunFolder(tmp_path))
    writer.write_status("finished")
    for step, value in enumerate([1e3, 1.0, math.nan, 0.1]):
        writer.log({"loss": value, "small": value, "zero": value * (step > 0)}, step)
    writer.close()
    record = read_run(tmp_path)
    assert chart_curves([record], ["loss"]).is_log_y
    assert not chart_curves([record], ["zero"]).is_log_y


def test_axis_says_if_points_are_means(tmp_path: Path) -> None:
    with closing(RunWriter(RunFolder(tmp_path))) as writer:
        writer.write_status("finished")
        for step in range(2401):
            writer.log({"loss": float(step == 7)}, step)
        writer.log({"val": 1.0}, 3)
    record = read_run(tmp_path)
    assert chart_curves([record], ["loss"]).x_name == "step, means of up to 3 points"
    assert chart_curves([record], ["val"]).x_name == "step"
