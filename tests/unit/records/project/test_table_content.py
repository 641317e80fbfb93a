"""Tests of cells, places and changes of result tables."""

from __future__ import annotations

import pytest

from epochal.errors import ConfigError
from epochal.records.project.table_content import (
    MAX_COLUMNS,
    MAX_ROWS,
    CellPlace,
    MetricCell,
    TableContent,
    TextCell,
    name_column,
    parse_content,
    remove_place,
    set_cells,
)

TEXT, LINK = {"text": "a"}, {"run": "r", "metric": "val/acc", "which": "best"}


def texts(content: TableContent) -> list[list[str]]:
    rows = [
        [cell.text if isinstance(cell, TextCell) else "link" for cell in row]
        for row in content.rows
    ]
    return [list(content.columns), *rows]


def test_content_is_the_same_after_json() -> None:
    content = parse_content(["a", "b"], [[TEXT, LINK], [LINK, {"text": " two \n lines "}]])
    assert content.rows[1] == (MetricCell("r", "val/acc"), TextCell("two lines"))
    assert parse_content(**content.to_json()) == content


def test_wrong_content_is_refused_with_its_place() -> None:
    for columns, rows, message in (
        ("a", [], "columns and rows must be lists"),
        (["a"], {}, "columns and rows must be lists"),
        ([1], [], "heading A: must be a text"),
        (["a"], [[TEXT, TEXT]], "row 1: must be a list of 1 cells"),
        (["a"], [[TEXT], 3], "row 2: must be a list"),
        (["a", "b"], [[TEXT, TEXT], [TEXT, 3]], "B2: must have a text, or run"),
        (["a"], [[{}]], "A1: must have a text"),
        (["a"], [[TEXT | LINK]], "A1: must have a text"),
        (["a"], [[LINK | {"which": "worst"}]], "A1: must name a run, a metric, and which"),
        (["a"], [[LINK | {"run": ""}]], "A1: must name a run"),
        (["a"], [[{"text": "\x1b[31m"}]], "A1: has control characters"),
        (["a"], [[{"text": "\ud800"}]], "A1: has control characters"),
        (["a"], [[{"text": "x" * 1001}]], "A1: must be a text of at most 1000"),
        (["a"] * (MAX_COLUMNS + 1), [], "at most 52 columns and 500 rows"),
        (["a"], [[TEXT]] * (MAX_ROWS + 1), "at most 52 columns and 500 rows"),
    ):
        with pytest.raises(ConfigError) as error:
            parse_content(columns, rows)
        assert message in str(error.value), (columns, rows)


def test_places_are_named_like_in_a_spreadsheet() -> None:
    for text, column, row in (("A1", 0, 0), ("b12", 1, 11), ("C", 2, None), ("3", None, 2)):
        assert CellPlace.parse(text) == CellPlace(column, row), text
    for text in ("", "0", "A0", "1A", "A1B", "AAA1", "-1", "é1"):
        with pytest.raises(ConfigError, match="is not a cell\n  write B2 for a cell"):
            CellPlace.parse(text)
    for number in range(100):
        assert CellPlace.parse(f"{name_column(number)}7") == CellPlace(number, 6)


def test_tables_grow_by_the_next_row_and_by_columns() -> None:
    content = set_cells(TableContent(), CellPlace.parse("A"), [TextCell("a"), TextCell("b")])
    content = set_cells(content, CellPlace.parse("A1"), [TextCell("1")])
    content = set_cells(content, CellPlace.parse("B2"), [TextCell("2"), TextCell("3")])
    assert texts(content) == [["a", "b", ""], ["1", "", ""], ["", "2", "3"]]
    content = set_cells(content, CellPlace.parse("B"), [TextCell("c")])
    assert content.columns == ("a", "c", "")
    for place, message in (
        ("E1", "E: leaves a gap\n  the next column is D"),
        ("A4", "row 4: leaves a gap\n  the next row is 3"),
        ("2", "a row has no heading"),
    ):
        with pytest.raises(ConfigError, match=message):
            set_cells(content, CellPlace.parse(place), [TextCell("x")])
    with pytest.raises(ConfigError, match="would have 53 columns"):
        set_cells(content, CellPlace.parse("A1"), [TextCell("x")] * 53)


def test_rows_columns_and_cells_are_removed() -> None:
    content = parse_content(["a", "b"], [[TEXT, LINK], [LINK, TEXT]])
    for place, found in (
        ("1", [["a", "b"], ["link", "a"]]),
        ("A", [["b"], ["link"], ["a"]]),
        ("B1", [["a", "b"], ["a", ""], ["link", "a"]]),
    ):
        assert texts(remove_place(content, CellPlace.parse(place))) == found, place
    for place, message in (("3", "no such row"), ("C", "no such column"), ("C1", "no such column")):
        with pytest.raises(ConfigError, match=message):
            remove_place(content, CellPlace.parse(place))
