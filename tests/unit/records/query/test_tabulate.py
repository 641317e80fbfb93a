"""Tests of runs as columns, CSV, Parquet and DataFrames."""

from __future__ import annotations

import io
import sys
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pytest

from epochal.errors import ConfigError
from epochal.records.query.query_runs import RunQuery, query_runs
from epochal.records.query.resolve_names import ConfigKey, Fact, Measure
from epochal.records.query.syntax import read_time
from epochal.records.query.tabulate import (
    ExportTable,
    RunGroup,
    default_columns,
    join_values,
    tabulate_groups,
    tabulate_runs,
)
from indexed import Indexed

if TYPE_CHECKING:
    import sqlite3

LR = ConfigKey("optim.lr", "optim.lr")
ACC = Measure("val/acc", "val/acc", "last")


@pytest.fixture
def answer(connection: sqlite3.Connection) -> Any:
    return query_runs(Indexed(connection), RunQuery())  # type: ignore[arg-type]  # has what is used


def test_sheet_has_a_row_per_run(answer: Any) -> None:
    sheet = tabulate_runs(answer, [Fact("run", "run"), LR])
    assert sheet.rows == [
        {"run": "bad", "optim.lr": None},
        {"run": "good", "optim.lr": 0.001},
        {"run": "odd", "optim.lr": 0.1},
    ]


def test_csv_quotes_what_must_be_quoted() -> None:
    sheet = ExportTable({"a,b": ['x "y"', None], "c": [True, 1.5], "d": ["line\nline", "=1"]})
    assert sheet.to_csv() == b'"a,b",c,d\n"x ""y""",true,"line\nline"\n,1.5,\'=1\n'


def test_parquet_keeps_types_where_a_column_has_one() -> None:
    parquet = pytest.importorskip("pyarrow.parquet")
    sheet = ExportTable(
        {
            "whole": [1, None],
            "real": [1, 2.5],
            "mixed": [1, "a"],
            "truth": [True, None],
            "none": [None, None],
            "large": [2**64 - 1, 1],
        }
    )
    table = parquet.read_table(io.BytesIO(sheet.to_parquet())).to_pydict()
    assert table == {
        "whole": [1, None],
        "real": [1.0, 2.5],
        "mixed": ["1", "a"],
        "truth": [True, None],
        "none": [None, None],
        "large": ["18446744073709551615", "1"],
    }


def test_parquet_without_its_package_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(ConfigError, match=r"pip install 'epochal\[frame\]'"):
        ExportTable({"a": [1]}).to_parquet()


def test_groups_have_means_and_intervals(answer: Any) -> None:
    groups = [RunGroup((1, 2), (1, 2)), RunGroup((0,), ())]
    sheet = tabulate_groups(answer, [Fact("tag", "tag"), LR, ACC], groups)
    first, second = sheet.rows
    assert (first["runs"], first["counted"], first["tag"]) == (2, 2, "wide net, 100%_sure")
    assert first["optim.lr"] == "0.001, 0.1"
    assert first["val/acc"] == pytest.approx(0.52)
    assert first["val/acc low"] < 0.1 < 0.94 < first["val/acc high"]
    assert (second["runs"], second["counted"], second["val/acc"]) == (1, 0, None)


def test_values_in_common() -> None:
    assert join_values([]) is None
    assert join_values([3]) == 3
    assert join_values([True, "a"]) == "true, a"


def test_default_columns_leave_out_what_no_run_has(answer: Any) -> None:
    shown = [target.shown for target in default_columns(answer)]
    assert shown[:3] == ["run", "project", "tag"]
    assert {"optim.lr", "val/acc", "speed", "path"} <= set(shown)
    assert not {"variant", "desc", "host", "parent"} & set(shown)


def test_damaged_times_are_none() -> None:
    assert read_time("2026-11-15T10:00:00+00:00") == datetime(2026, 11, 15, 10, tzinfo=UTC)
    assert read_time(None) is None
    assert read_time("soon") is None
