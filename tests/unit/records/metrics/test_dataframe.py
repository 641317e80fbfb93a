"""Tests of epochal.records.metrics.points."""

from __future__ import annotations

import math
import sys
from typing import TYPE_CHECKING

import pytest

import epochal as ep
from epochal.errors import RecordError
from epochal.records import RunFolder, RunRecord, RunWriter

if TYPE_CHECKING:
    from epochal.records.metrics.points import Library

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def record(tmp_path: Path) -> RunRecord:
    writer = RunWriter(RunFolder(tmp_path))
    writer.write_status("running")
    for step in range(3):
        writer.log({"loss": 1.0 - step}, step)
    writer.log({"val/acc": 0.5}, 2)
    writer.log({"val/acc": math.nan}, 5)
    return ep.read(tmp_path)


def test_pandas_gets_a_row_per_step_and_a_column_per_metric(record: RunRecord) -> None:
    frame = record.frame()
    assert list(frame.columns) == ["step", "loss", "val/acc"]
    assert frame["step"].tolist() == [0, 1, 2, 5]
    assert frame["loss"].tolist()[:3] == [1.0, 0.0, -1.0]
    assert frame["val/acc"].isna().tolist() == [True, True, False, True]


def test_polars_tells_missing_values_from_nan(record: RunRecord) -> None:
    frame = record.frame(library="polars")
    assert frame.columns == ["step", "loss", "val/acc"]
    assert frame["loss"].to_list() == [1.0, 0.0, -1.0, None]
    assert frame["val/acc"].to_list()[:3] == [None, None, 0.5]
    assert math.isnan(frame["val/acc"][3])


LIBRARIES: tuple[Library, ...] = ("pandas", "polars")


def test_metrics_can_be_selected(record: RunRecord, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "empty" / "run.json").write_text("{}")
    for library in LIBRARIES:
        frame = record.frame("loss", library=library)
        assert (list(frame.columns), len(frame)) == (["step", "loss"], 3)
        with pytest.raises(RecordError, match=r"los: no such metric\n  did you mean 'loss'"):
            record.frame("los", library=library)
        empty = ep.read(tmp_path / "empty").frame(library=library)
        assert (list(empty.columns), len(empty)) == (["step"], 0)


def test_a_missing_library_is_named(record: RunRecord, monkeypatch: pytest.MonkeyPatch) -> None:
    for library in LIBRARIES:
        monkeypatch.setitem(sys.modules, library, None)
        message = f"{library}: is not installed\n  pip install {library}"
        with pytest.raises(RecordError, match=message):
            record.frame(library=library)
