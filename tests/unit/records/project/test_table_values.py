"""Tests of the values that linked cells show."""

from __future__ import annotations

import math
import shutil
from typing import TYPE_CHECKING

from comparing import make_run
from epochal.records.index import Index
from epochal.records.project.table_content import MetricCell
from epochal.records.project.table_values import CellValue, read_cell_values

if TYPE_CHECKING:
    from pathlib import Path


def test_best_and_last_values_are_read_from_the_records(tmp_path: Path) -> None:
    points = {
        "val/acc": {1: 0.9, 2: 0.7},
        "test/acc": {1: 0.8, 2: 0.6},
        "train/loss": {1: 0.1, 2: 0.3},
        "odd": {1: 1.0, 2: 2.0},
        "bad": {1: 1.0, 2: math.nan},
    }
    run = make_run(
        tmp_path / "p" / "t" / "one",
        points=points,
        metrics={"val/acc": 0.7, "final/acc": 0.5},
        best=0.9,
    )
    cells = {
        ("val/acc", "best"): CellValue(0.9),
        ("val/acc", "last"): CellValue(0.7),
        ("test/acc", "best"): CellValue(0.8),  # as the monitored metric of another split
        ("train/loss", "best"): CellValue(0.1),
        ("train/loss", "last"): CellValue(0.3),
        ("final/acc", "best"): CellValue(0.5),  # only in the result
        ("odd", "last"): CellValue(2.0),
        ("odd", "best"): CellValue(None, "which way odd is better is unknown; link its last value"),
        ("none", "last"): CellValue(None, "run one has no metric none"),
    }
    wanted = {MetricCell("one", *key): value for key, value in cells.items()}  # type: ignore[arg-type]
    gone, nan = MetricCell("gone", "val/acc"), MetricCell("one", "bad", "last")
    with Index.open(tmp_path) as index:
        index.refresh()
        found = read_cell_values(index, [*wanted, gone, nan])
        assert math.isnan(found.pop(nan).value or 0)
        assert found == wanted | {gone: CellValue(None, "run gone is gone")}
        assert read_cell_values(index, []) == {}
        shutil.rmtree(run.path)
        index.refresh()
        cell = MetricCell("one", "val/acc")
        assert read_cell_values(index, [cell]) == {cell: CellValue(None, "run one is gone")}
