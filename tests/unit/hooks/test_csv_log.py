"""CsvLog: every point as a row of a CSV file."""

from __future__ import annotations

import csv
from typing import TYPE_CHECKING

from epochal.engine.tracking.mirror import Entry
from epochal.engine.tracking.tracker import TrackedRun
from epochal.hooks.points_file import CsvLog
from tracked import Series, carry_out_tracked, recorded

if TYPE_CHECKING:
    from pathlib import Path


def read(folder: Path) -> Series:
    found: Series = {}
    with (folder / "points.csv").open(newline="") as file:
        for row in csv.DictReader(file):
            points = found.setdefault(row["name"], {})
            assert int(row["step"]) not in points
            points[int(row["step"])] = float(row["value"])
    return found


def test_rows_equal_the_record_bit_for_bit(tmp_path: Path) -> None:
    folder, result = carry_out_tracked(tmp_path, CsvLog(every="2st"))
    assert result.ok, result.message
    assert read(folder) == recorded(folder)


def test_names_are_quoted(tmp_path: Path) -> None:
    sink = CsvLog().open(TrackedRun(tmp_path, "tiny", "", ""))
    sink.write([Entry(1, 2.5, {'a,"b"\nc': 0.1})])
    sink.close(has_failed=False)
    assert read(tmp_path) == {'a,"b"\nc': {1: 0.1}}


def test_an_existing_file_is_replaced(tmp_path: Path) -> None:
    (tmp_path / "points.csv").write_text("step,time,name,value\n1,0.0,a,1.0\n2,0.")
    sink = CsvLog().open(TrackedRun(tmp_path, "tiny", "", ""))
    sink.write([Entry(1, 0.0, {"a": float("nan")})])
    sink.close(has_failed=False)
    assert (tmp_path / "points.csv").read_text() == "step,time,name,value\n1,0.0,a,nan\n"


def test_the_description_names_the_file() -> None:
    assert CsvLog().describe(None) == "points.csv"
