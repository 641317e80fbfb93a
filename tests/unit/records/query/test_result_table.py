"""Tests of runs as columns, CSV, Parquet and DataFrames."""

from __future__ import annotations

import io
import sys
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pytest

import epochal as ep
from epochal.errors import ConfigError
from epochal.records.query.ask import Question, ask
from epochal.records.query.names import ConfigKey, Fact, Measure
from epochal.records.query.result_table import (
    RunGroup,
    Sheet,
    default_columns,
    join_values,
    lay_out,
    lay_out_groups,
)
from epochal.records.query.values import read_time
from indexed import Indexed

if TYPE_CHECKING:
    import sqlite3
    from pathlib import Path

LR = ConfigKey("optim.lr", "optim.lr")
ACC = Measure("val/acc", "val/acc", "last")


@pytest.fixture
def answer(connection: sqlite3.Connection) -> Any:
    return ask(Indexed(connection), Question())  # type: ignore[arg-type]  # has what is used


def test_sheet_has_a_row_per_run(answer: Any) -> None:
    sheet = lay_out(answer, [Fact("run", "run"), LR])
    assert sheet.rows == [
        {"run": "bad", "optim.lr": None},
        {"run": "good", "optim.lr": 0.001},
        {"run": "odd", "optim.lr": 0.1},
    ]


def test_csv_quotes_what_must_be_quoted() -> None:
    sheet = Sheet({"a,b": ['x "y"', None], "c": [True, 1.5], "d": ["line\nline", "=1"]})
    assert sheet.to_csv() == b'"a,b",c,d\n"x ""y""",true,"line\nline"\n,1.5,=1\n'


def test_parquet_keeps_types_where_a_column_has_one() -> None:
    parquet = pytest.importorskip("pyarrow.parquet")
    sheet = Sheet(
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
        Sheet({"a": [1]}).to_parquet()


def test_groups_have_means_and_intervals(answer: Any) -> None:
    groups = [RunGroup((1, 2), (1, 2)), RunGroup((0,), ())]
    sheet = lay_out_groups(answer, [Fact("tag", "tag"), LR, ACC], groups)
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


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Two folders that look like runs."""
    for name, lr in (("20261114-100000-aaaa", "0.1"), ("20261115-100000-bbbb", "1e-3")):
        folder = tmp_path / "store" / "shop" / name
        (folder / "config").mkdir(parents=True)
        (folder / "run.json").write_text('{"project": "store", "tag": "shop", "seed": 3}')
        started = f"{name[:4]}-{name[4:6]}-{name[6:8]}T10:00:00.000+00:00"
        (folder / "status.json").write_text(
            f'{{"status": "finished", "started": "{started}", "ended": "{started}", "step": 5}}'
        )
        (folder / "result.json").write_text('{"best": 0.5, "metrics": {}}')
        (folder / "config" / "provenance.json").write_text(
            f'{{"optim.lr": [{{"value": {lr}, "layer": "file"}}], "same": [{{"value": 1}}]}}'
        )
    return tmp_path


def test_runs_as_a_dataframe(root: Path) -> None:
    pytest.importorskip("pandas")
    frame = ep.runs(root=root)
    assert frame["run"].tolist() == ["20261114-100000-aaaa", "20261115-100000-bbbb"]
    assert frame["optim.lr"].tolist() == [0.1, 1e-3]
    assert frame["started"].dt.day.tolist() == [14, 15]
    assert frame["best"].mean() == 0.5
    assert "same" not in frame


def test_dataframe_of_selected_runs(root: Path) -> None:
    pytest.importorskip("pandas")
    frame = ep.runs("optim.lr > 0.01", root=root, columns=["run", "optim.lr", "same"])
    assert frame.to_dict("list") == {
        "run": ["20261114-100000-aaaa"],
        "optim.lr": [0.1],
        "same": [1],
    }
    assert len(ep.runs(root=root, search="shop", sort="optim.lr desc", limit=1)) == 1
    assert len(ep.runs(root=root / "store")) == 2


def test_no_runs_give_an_empty_dataframe(tmp_path: Path) -> None:
    pytest.importorskip("pandas")
    assert ep.runs(root=tmp_path / "nothing").empty
    assert not (tmp_path / "nothing").exists()


def test_dataframe_of_an_invalid_query(root: Path) -> None:
    with pytest.raises(ConfigError, match="where: unknown name 'lr'"):
        ep.runs("lr > 1", root=root)


def test_without_pandas_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(ConfigError, match=r"pip install 'epochal\[frame\]'"):
        ep.runs()
