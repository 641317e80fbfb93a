"""Writes result tables as Markdown, LaTeX and CSV."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Literal

from epochal.records.project.table_content import TextCell
from epochal.records.query.syntax import read_number
from epochal.records.query.tabulate import encode_csv
from epochal.text.formatting import format_value

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from epochal.records.project.table_content import Cell, MetricCell, TableContent
    from epochal.records.project.table_values import CellValue

TableFormat = Literal["markdown", "latex", "csv"]

UNKNOWN = "?"
"""What a linked cell without a value shows."""

_MARKDOWN = re.compile(r"[\\`*_\[\]<>|~&$]")
_LATEX = {
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "|": r"\textbar{}",
    "`": r"\textasciigrave{}",
    **{char: f"\\{char}" for char in "{}$&#_%"},
}
_LATEX_SPECIAL = re.compile("[" + re.escape("".join(_LATEX)) + "]")
_LIGATURE = re.compile(r"([-,'])(?=\1)")
"""Two hyphens become a dash in LaTeX, two commas or apostrophes a quotation mark."""

_NEGATIVE = re.compile(r"-[0-9]+(\.[0-9]+)?")
_EXPONENT = re.compile(r"(-?[0-9.]+)e([-+][0-9]+)")


def export_table(
    content: TableContent, values: Mapping[MetricCell, CellValue], form: TableFormat
) -> str:
    """The text of a table; empty if it has no columns."""
    if not content.columns:
        return ""
    if form == "csv":
        rows = [[_exact(cell, values) for cell in row] for row in content.rows]
        return encode_csv([content.columns, *rows])
    places = range(len(content.columns))
    is_number = [_is_number_column([row[i] for row in content.rows]) for i in places]
    return (_to_markdown if form == "markdown" else _to_latex)(content, values, is_number)


def show_cell(cell: Cell, values: Mapping[MetricCell, CellValue]) -> str:
    """The text of a cell, with four digits of a linked value."""
    if isinstance(cell, TextCell):
        return cell.text
    value = values[cell].value
    return UNKNOWN if value is None else format_value(value)


def _exact(cell: Cell, values: Mapping[MetricCell, CellValue]) -> object:
    """The text, or the value with all its digits."""
    if isinstance(cell, TextCell):
        return cell.text
    value = values[cell].value
    return UNKNOWN if value is None else value


def _is_number_column(cells: Sequence[Cell]) -> bool:
    texts = [cell.text for cell in cells if isinstance(cell, TextCell) and cell.text]
    return bool(cells) and all(read_number(text) is not None for text in texts)


def _to_markdown(
    content: TableContent, values: Mapping[MetricCell, CellValue], is_number: Sequence[bool]
) -> str:
    lines = [
        [_escape_markdown(text) for text in content.columns],
        ["---:" if one else "---" for one in is_number],
        *([_escape_markdown(show_cell(cell, values)) for cell in row] for row in content.rows),
    ]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def _escape_markdown(text: str) -> str:
    return _MARKDOWN.sub(r"\\\g<0>", text)


def _to_latex(
    content: TableContent, values: Mapping[MetricCell, CellValue], is_number: Sequence[bool]
) -> str:
    head = [_escape_latex(text) for text in content.columns]
    rows = [[_cell_to_latex(cell, values) for cell in row] for row in content.rows]
    letters = "".join("r" if one else "l" for one in is_number)
    lines = [
        r"% needs \usepackage{booktabs}",
        rf"\begin{{tabular}}{{{letters}}}",
        r"  \toprule",
        _latex_line(head),
        r"  \midrule",
        *map(_latex_line, rows),
        r"  \bottomrule",
        r"\end{tabular}",
    ]
    return "".join(f"{line}\n" for line in lines)


def _latex_line(cells: Sequence[str]) -> str:
    # Commands such as \midrule and \\ would take a bracket or a star as their argument.
    first = f"{{}}{cells[0]}" if cells[0].startswith(("[", "*")) else cells[0]
    return rf"  {' & '.join([first, *cells[1:]])} \\"


def _cell_to_latex(cell: Cell, values: Mapping[MetricCell, CellValue]) -> str:
    text = show_cell(cell, values)
    value = None if isinstance(cell, TextCell) else values[cell].value
    found = None if value is None else _EXPONENT.fullmatch(text)
    if found is not None:
        return rf"${found[1]} \times 10^{{{int(found[2])}}}$"
    return f"${text}$" if _NEGATIVE.fullmatch(text) else _escape_latex(text)


def _escape_latex(text: str) -> str:
    escaped = _LATEX_SPECIAL.sub(lambda found: _LATEX[found[0]], text)
    return _LIGATURE.sub(r"\1{}", escaped)
