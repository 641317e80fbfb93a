"""The content of a result table: cells with texts or links to metrics, and changes of them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal, final, get_args

from epochal.errors import ConfigError, Problem

if TYPE_CHECKING:
    from collections.abc import Sequence

Which = Literal["best", "last"]

MAX_ROWS = 500
MAX_COLUMNS = 52
MAX_TEXT = 1000
_CONTROL = re.compile("[\x00-\x1f\x7f-\x9f\ud800-\udfff]")
_PLACE = re.compile(r"([A-Za-z]{0,2})([1-9][0-9]{0,5})?")
_LETTERS = 26


@final
@dataclass(frozen=True, slots=True)
class TextCell:
    """A cell that a user typed."""

    text: str = ""

    def to_json(self) -> dict[str, str]:
        """As the database and the web page have it."""
        return {"text": self.text}


@final
@dataclass(frozen=True, slots=True)
class MetricCell:
    """A cell that shows a metric of a run."""

    run: str
    """The id of the run."""

    metric: str
    which: Which = "best"

    def to_json(self) -> dict[str, str]:
        """As the database and the web page have it."""
        return {"run": self.run, "metric": self.metric, "which": self.which}


Cell = TextCell | MetricCell


@final
@dataclass(frozen=True, slots=True)
class TableContent:
    """Headings, and rows with one cell for each of them."""

    columns: tuple[str, ...] = ()
    rows: tuple[tuple[Cell, ...], ...] = ()

    @property
    def metric_cells(self) -> list[MetricCell]:
        """The cells that show a metric, row by row."""
        return [cell for row in self.rows for cell in row if isinstance(cell, MetricCell)]

    def to_json(self) -> dict[str, Any]:
        """As the database has it."""
        rows = [[cell.to_json() for cell in row] for row in self.rows]
        return {"columns": list(self.columns), "rows": rows}


def parse_content(columns: object, rows: object) -> TableContent:
    """The content in JSON; ConfigError says which cell is wrong."""
    if not isinstance(columns, list) or not isinstance(rows, list):
        raise _error("table", "columns and rows must be lists")
    _check_size(len(columns), len(rows))
    headings = tuple(
        check_text(one, f"heading {name_column(place)}") for place, one in enumerate(columns)
    )
    found = []
    for number, row in enumerate(rows, start=1):
        if not isinstance(row, list) or len(row) != len(headings):
            raise _error(f"row {number}", f"must be a list of {len(headings)} cells")
        found.append(
            tuple(_parse_cell(one, f"{name_column(i)}{number}") for i, one in enumerate(row))
        )
    return TableContent(headings, tuple(found))


def _parse_cell(value: object, shown: str) -> Cell:
    if isinstance(value, Mapping) and value.keys() == {"text"}:
        return TextCell(check_text(value["text"], shown))
    if not isinstance(value, Mapping) or value.keys() != {"run", "metric", "which"}:
        raise _error(shown, "must have a text, or run, metric and which")
    run, metric = (check_text(value[name], shown) for name in ("run", "metric"))
    which = next((one for one in get_args(Which) if one == value["which"]), None)
    if not run or not metric or which is None:
        raise _error(shown, "must name a run, a metric, and which value: best or last")
    return MetricCell(run, metric, which)


def check_text(value: object, shown: str) -> str:
    """A text in one line without redundant spaces; ConfigError if it is invalid."""
    if not isinstance(value, str) or len(value) > MAX_TEXT:
        raise _error(shown, f"must be a text of at most {MAX_TEXT} characters")
    text = " ".join(value.split())
    if _CONTROL.search(text):
        raise _error(shown, "has control characters", "remove them")
    return text


def _check_size(num_columns: int, num_rows: int) -> None:
    if num_columns > MAX_COLUMNS or num_rows > MAX_ROWS:
        what = f"would have {num_columns} columns and {num_rows} rows"
        hint = f"at most {MAX_COLUMNS} columns and {MAX_ROWS} rows: begin another table"
        raise _error("table", what, hint)


def _error(shown: str, what: str, hint: str = "") -> ConfigError:
    return ConfigError(Problem(shown, what, hint=hint))


@final
@dataclass(frozen=True, slots=True)
class CellPlace:
    """A cell such as B2, a column such as B, or a row such as 2; counted from 0."""

    column: int | None
    row: int | None

    @classmethod
    def parse(cls, text: str) -> CellPlace:
        """The place that a user typed; ConfigError if it is none."""
        found = _PLACE.fullmatch(text)
        if found is None or not text:
            raise _error(text, "is not a cell", "write B2 for a cell, B for a column, 2 for a row")
        column = None
        for letter in found[1].upper():
            column = ((column + 1) * _LETTERS if column is not None else 0) + ord(letter) - ord("A")
        return cls(column, None if found[2] is None else int(found[2]) - 1)


def name_column(column: int) -> str:
    """The letters of a column: A, B, ..., Z, AA, ..."""
    before = name_column(column // _LETTERS - 1) if column >= _LETTERS else ""
    return before + chr(ord("A") + column % _LETTERS)


def set_cells(content: TableContent, place: CellPlace, cells: Sequence[Cell]) -> TableContent:
    """The table with cells from a place to the right; the next row and new columns are added.

    A place without a row means headings.
    """
    if place.column is None:
        raise _error("table", "a row has no heading", "name a cell, such as A2")
    width, height = len(content.columns), len(content.rows)
    if place.column > width:
        name = name_column(width)
        raise _error(name_column(place.column), "leaves a gap", f"the next column is {name}")
    if place.row is not None and place.row > height:
        raise _error(f"row {place.row + 1}", "leaves a gap", f"the next row is {height + 1}")
    height = height if place.row is None else max(height, place.row + 1)
    grown = _grow(content, max(width, place.column + len(cells)), height)
    last = place.column + len(cells)
    if place.row is None:
        headings = tuple(cell.text for cell in cells if isinstance(cell, TextCell))
        columns = (*grown.columns[: place.column], *headings, *grown.columns[last:])
        return replace(grown, columns=columns)
    row = grown.rows[place.row]
    changed = (*row[: place.column], *cells, *row[last:])
    rows = (*grown.rows[: place.row], changed, *grown.rows[place.row + 1 :])
    return replace(grown, rows=rows)


def _grow(content: TableContent, width: int, height: int) -> TableContent:
    _check_size(width, height)
    more = width - len(content.columns)
    rows = [(*row, *(TextCell(),) * more) for row in content.rows]
    rows += [(TextCell(),) * width] * (height - len(rows))
    return TableContent((*content.columns, *("",) * more), tuple(rows))


def add_row(content: TableContent, cells: Sequence[Cell]) -> TableContent:
    """The table with one more row."""
    return set_cells(content, CellPlace(0, len(content.rows)), cells)


def remove_place(content: TableContent, place: CellPlace) -> TableContent:
    """The table without a row or a column, or with an empty cell."""
    column, row = place.column, place.row
    if column is not None and column >= len(content.columns):
        raise _error(name_column(column), "there is no such column")
    if row is not None and row >= len(content.rows):
        raise _error(f"row {row + 1}", "there is no such row")
    if column is not None and row is not None:
        return set_cells(content, place, [TextCell()])
    if column is None:
        rows = tuple(one for number, one in enumerate(content.rows) if number != row)
        return replace(content, rows=rows)
    columns = (*content.columns[:column], *content.columns[column + 1 :])
    rows = tuple((*one[:column], *one[column + 1 :]) for one in content.rows)
    return TableContent(columns, rows)
