"""Tests of epochal.records.metrics.dataframe."""

from __future__ import annotations

import math
import sys
from typing import TYPE_CHECKING

import pytest

import epochal as ep
from epochal.errors import RecordError
from epochal.records import RunFolder, RunRecord, RunWriter

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


@pytest.mark.parametrize("library", ["pandas", "polars"])
def test_some_metrics_may_be_named(record: RunRecord, library: str) -> None:
    frame = record.frame("loss", library=library)  # type: ignore[arg-type]  # one of the two
    assert list(frame.columns) == ["step", "loss"]
    assert len(frame) == 3
    with pytest.raises(RecordError, match=r"los: no such metric\n  did you mean 'loss'"):
        record.frame("los", library=library)  # type: ignore[arg-type]


@pytest.mark.parametrize("library", ["pandas", "polars"])
def test_run_without_points_has_an_empty_table(tmp_path: Path, library: str) -> None:
    (tmp_path / "run.json").write_text("{}")
    frame = ep.read(tmp_path).frame(library=library)  # type: ignore[arg-type]
    assert list(frame.columns) == ["step"]
    assert len(frame) == 0


@pytest.mark.parametrize("library", ["pandas", "polars"])
def test_missing_library_is_named(
    record: RunRecord, library: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, library, None)
    with pytest.raises(RecordError, match=f"{library}: is not installed\n  pip install {library}"):
        record.frame(library=library)  # type: ignore[arg-type]
