"""Tests of the store of result tables: names, versions, changes at the same time."""

from __future__ import annotations

from functools import partial
from threading import Thread
from typing import TYPE_CHECKING

import pytest

from epochal.errors import ConfigError, RecordError
from epochal.records.index import Index
from epochal.records.project import result_tables
from epochal.records.project.result_tables import ResultTables
from epochal.records.project.table_content import MetricCell, TableContent, TextCell, add_row

if TYPE_CHECKING:
    from pathlib import Path

CONTENT = TableContent(
    ("method", "val/acc"),
    ((TextCell("基线"), MetricCell("20261114-100000-aaaa", "val/acc", "last")),),
)


def test_tables_are_kept(tmp_path: Path) -> None:
    tables = ResultTables(tmp_path)
    made = tables.create(" my  results ", CONTENT)
    assert made.name == "my results"
    assert ResultTables(tmp_path).get("my results") == made
    assert made.content == CONTENT
    tables.create("ablation")
    assert [one.name for one in tables.list_tables()] == ["ablation", "my results"]
    tables.remove("my results")
    assert tables.find("my results") is None


def test_rebuilding_the_index_never_touches_the_tables(tmp_path: Path) -> None:
    tables = ResultTables(tmp_path)
    made = tables.create("results", CONTENT)
    with Index.open(tmp_path) as index:
        index.refresh(is_all=True)
        index._replace(is_damaged=True)
    assert tables.get("results") == made


def test_names_that_cannot_be_used_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tables = ResultTables(tmp_path)
    for name in ("", " ", "a/b", "a\\b", ".", "..", "x" * 61, "a\x00b", "a\u202eb"):
        with pytest.raises(ConfigError, match="cannot be the name of a table"):
            tables.create(name)
    tables.create("results")
    with pytest.raises(RecordError, match="a table of this name exists"):
        tables.create("results")
    for use in (tables.get, tables.remove, partial(tables.edit, change=lambda content: content)):
        with pytest.raises(RecordError, match="no such table\n  did you mean 'results'"):
            use("result")
    with pytest.raises(RecordError, match="no such table"):
        tables.replace("result", 1, CONTENT)
    monkeypatch.setattr(result_tables, "MAX_TABLES", 1)
    with pytest.raises(RecordError, match="there are 1 tables\n  remove one first"):
        tables.create("other")


def test_a_change_of_an_old_version_is_refused(tmp_path: Path) -> None:
    tables = ResultTables(tmp_path)
    first = tables.create("results")
    second = tables.replace("results", first.version, CONTENT)
    with pytest.raises(RecordError, match="changed meanwhile, so nothing was written"):
        tables.replace("results", first.version, TableContent())
    assert tables.get("results") == second
    tables.remove("results")
    tables.create("results")
    with pytest.raises(RecordError, match="changed meanwhile"):  # another table of that name
        tables.replace("results", second.version, TableContent())


def test_changes_at_the_same_time_lose_nothing(tmp_path: Path) -> None:
    tables = ResultTables(tmp_path)
    tables.create("results", TableContent(("method",)))
    lost: list[int] = []

    def edit(number: int) -> None:
        add = partial(add_row, cells=[TextCell(str(number))])
        ResultTables(tmp_path).edit("results", add)
        table = tables.get("results")
        try:
            tables.replace("results", table.version, add(table.content))
        except RecordError:
            lost.append(number)

    threads = [Thread(target=edit, args=(number,)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    rows = sorted(int(row[0].text) for row in tables.get("results").content.rows)  # type: ignore[union-attr]
    assert rows == sorted([*range(6), *({*range(6)} - {*lost})])
