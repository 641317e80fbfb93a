"""``epochal table``: result tables whose cells are typed or show metrics of runs."""

from __future__ import annotations

import sys
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

from epochal import durable
from epochal.cli.arguments import RUN_HELP, add_json_option, add_runs_dir_option, print_json
from epochal.cli.draw.text_table import format_table
from epochal.errors import ConfigError, Problem, RecordError, suggest
from epochal.experiment.config.choices import add_options
from epochal.records.find import read_run
from epochal.records.index import Index
from epochal.records.project.result_tables import ResultTables
from epochal.records.project.table_content import (
    CellPlace,
    MetricCell,
    TableContent,
    TextCell,
    add_row,
    check_text,
    name_column,
    remove_place,
    set_cells,
)
from epochal.records.project.table_export import TableFormat, export_table, show_cell
from epochal.records.project.table_values import read_cell_values
from epochal.records.query.query_runs import is_root, locate
from epochal.records.query.syntax import read_time
from epochal.text.command import epochal_command
from epochal.text.escape import decode_typed, escape_control
from epochal.text.formatting import format_count
from epochal.text.terminal import is_confirmed

if TYPE_CHECKING:
    import argparse
    from collections.abc import Mapping, Sequence

    from epochal.records import RunRecord
    from epochal.records.project.result_tables import ResultTable
    from epochal.records.project.table_content import Cell, Which
    from epochal.records.project.table_values import CellValue

_ACTIONS = {
    "list": "list the tables",
    "new": "make a table with these headings",
    "show": "show a table with the current values of its runs",
    "add": "add a row for each run; columns named like one of its metrics are linked to it",
    "set": "write texts into a cell and the cells to its right, or change headings",
    "link": "link cells to metrics of a run, from a cell to the right",
    "remove": "remove a row, a column, the text of a cell, or the table",
    "export": "print a table as Markdown, LaTeX or CSV, or write it to a file",
}
_CELL = "B2; B is the column and its heading, 2 the row; the next row or column is added"
_FORMATS = get_args(TableFormat)
_SUFFIXES: dict[str, TableFormat] = {".md": "markdown", ".tex": "latex", ".csv": "csv"}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the actions with their arguments and options."""
    actions = parser.add_subparsers(dest="action", metavar="ACTION", title="actions")
    for name, text in _ACTIONS.items():
        about = text[0].upper() + text[1:] + "."
        one = actions.add_parser(name, help=text, description=about, allow_abbrev=False)
        if name != "list":
            one.add_argument("table", metavar="NAME", help="name of the table")
        _add_own_arguments(name, one)
        add_runs_dir_option(one)
    parser.set_defaults(action="list", json=False)
    add_runs_dir_option(parser)


def _add_own_arguments(name: str, parser: argparse.ArgumentParser) -> None:
    if name in ("set", "link"):
        parser.add_argument("cell", metavar="CELL", help=f"such as {_CELL}")
    if name == "link":
        parser.add_argument("run", metavar="RUN", help=RUN_HELP)
        text = "show the last value, not the best one"
        parser.add_argument("--last", action="store_true", help=text)
    words = {
        "new": ("*", "HEADING", "such as method val/acc"),
        "add": ("+", "RUN", RUN_HELP),
        "set": ("+", "TEXT", "the text of the cell, and of the cells to its right"),
        "link": ("+", "METRIC", "such as val/acc"),
    }
    if name in words:
        count, shown, text = words[name]
        parser.add_argument("words", nargs=count, metavar=shown, help=text)
    if name == "remove":
        text = "a row such as 2, a column such as B, or a cell such as B2; without it the table"
        parser.add_argument("cell", nargs="?", metavar="PLACE", help=text)
        add_options(parser, {"--yes": "remove the table without asking"})
    if name == "export":
        parser.add_argument("--format", choices=_FORMATS, help="default: markdown")
        text = "write to a file in the format of its suffix: .md, .tex, .csv"
        parser.add_argument("-o", "--output", type=Path, metavar="FILE", help=text)
    if name in ("list", "show"):
        add_json_option(parser)


def execute(args: argparse.Namespace) -> int:
    """Do the action; returns the exit code."""
    root, _ = locate(args.runs_dir)
    tables = ResultTables(root)
    if args.action == "list":
        _list(tables, args)
    elif args.action == "remove" and args.cell is None:
        return _remove_table(tables, args)
    elif args.action == "show":
        _show(tables.get(args.table), root, is_json=args.json)
    elif args.action == "export":
        _export(tables.get(args.table), root, args)
    elif args.action == "new":
        headings = [check_text(decode_typed(word), "heading") for word in args.words]
        content = set_cells(TableContent(), CellPlace(0, None), [*map(TextCell, headings)])
        _show(tables.create(decode_typed(args.table), content), root)
    else:
        _show(tables.edit(args.table, _change(args)), root)
    return 0


def _list(tables: ResultTables, args: argparse.Namespace) -> None:
    found = [
        {
            "name": one.name,
            "rows": len(one.content.rows),
            "columns": len(one.content.columns),
            "changed": one.changed,
        }
        for one in tables.list_tables()
    ]
    if args.json:
        print_json(found)
    elif found:
        rows = [
            [str(one["name"]), str(one["rows"]), str(one["columns"]), _format_time(one["changed"])]
            for one in found
        ]
        print(format_table(list(found[0]), rows))
        print(f"\n`{epochal_command()} table show NAME` shows one")
    else:
        hint = f"{epochal_command()} table new results method val/acc"
        print(f"no tables; make one: `{hint}`")


def _format_time(text: object) -> str:
    moment = read_time(str(text))
    return f"{moment.astimezone():%Y-%m-%d %H:%M}" if moment else ""


def _change(args: argparse.Namespace) -> partial[TableContent]:
    """The change of an action; its inputs are read before the table is locked."""
    if args.action == "add":
        records = [read_run(word, args.runs_dir) for word in args.words]
        return partial(_add_runs, records=records)
    place = CellPlace.parse(args.cell)
    if args.action == "remove":
        return partial(remove_place, place=place)
    if args.action == "set":
        texts = [check_text(decode_typed(word), args.cell) for word in args.words]
        return partial(set_cells, place=place, cells=[*map(TextCell, texts)])
    if place.row is None:
        what, hint = "is a heading, which cannot show a metric", f"name a cell: {args.cell}1"
        raise ConfigError(Problem(args.cell, what, hint=hint))
    record = read_run(args.run, args.runs_dir)
    known = _metrics_of(record)
    for name in args.words:
        if name not in known:
            hint = suggest(name, known) or f"it has {', '.join(known[:8]) or 'none'}"
            raise RecordError(f"{record.path}: no metric {name!r}\n  {hint}")
    which: Which = "last" if args.last else "best"
    cells = [MetricCell(record.summary.id, name, which) for name in args.words]
    return partial(set_cells, place=place, cells=cells)


def _metrics_of(record: RunRecord) -> list[str]:
    final = record.result.get("metrics")
    return sorted({*record.metric_names(), *(final if isinstance(final, dict) else ())})


def _add_runs(content: TableContent, records: Sequence[RunRecord]) -> TableContent:
    """One more row for each run: its tag in the first column, linked metrics in others."""
    if not content.columns:
        what, hint = "has no columns", "name some: set NAME A method val/acc"
        raise ConfigError(Problem("table", what, hint=hint))
    for record in records:
        known = {*_metrics_of(record)}
        cells: list[Cell] = [
            MetricCell(record.summary.id, name) if name in known else TextCell()
            for name in content.columns
        ]
        if cells[0] == TextCell():
            cells[0] = TextCell(check_text(record.summary.tag, "A"))
        content = add_row(content, cells)
    return content


def _remove_table(tables: ResultTables, args: argparse.Namespace) -> int:
    if not args.yes:
        table = tables.get(args.table)
        size = format_count(len(table.content.rows), "row")
        if not sys.stdin.isatty():
            print(f"{escape_control(table.name)} has {size}; add --yes to remove it")
            return 0
        if not is_confirmed(f"remove {table.name!r} with {size}?"):
            print("nothing was removed")
            return 0
    tables.remove(args.table)
    print(f"removed {escape_control(args.table)}")
    return 0


def _read_values(table: ResultTable, root: Path) -> dict[MetricCell, CellValue]:
    cells = table.content.metric_cells
    if not cells:
        return {}
    with Index.open(root, is_kept=is_root(root)) as index:
        index.refresh()
        return read_cell_values(index, cells)


def _show(table: ResultTable, root: Path, *, is_json: bool = False) -> None:
    values, content = _read_values(table, root), table.content
    if is_json:
        print_json(_to_json(table, values))
        return
    header = ["", *(f"{name_column(i)} {text}".strip() for i, text in enumerate(content.columns))]
    rows = [
        [str(number), *(show_cell(cell, values) for cell in row)]
        for number, row in enumerate(content.rows, start=1)
    ]
    print(format_table(header, rows))
    _print_problems(content, values)


def _to_json(table: ResultTable, values: Mapping[MetricCell, CellValue]) -> dict[str, Any]:
    def to_json(cell: Cell) -> dict[str, Any]:
        more = values[cell]._asdict() if isinstance(cell, MetricCell) else {}
        return cell.to_json() | more

    rows = [[to_json(cell) for cell in row] for row in table.content.rows]
    columns = list(table.content.columns)
    return {"name": table.name, "version": table.version, "columns": columns, "rows": rows}


def _print_problems(content: TableContent, values: Mapping[MetricCell, CellValue]) -> None:
    for number, row in enumerate(content.rows, start=1):
        for column, cell in enumerate(row):
            if isinstance(cell, MetricCell) and values[cell].problem:
                text = f"{name_column(column)}{number}: {values[cell].problem}"
                print(escape_control(text), file=sys.stderr)


def _export(table: ResultTable, root: Path, args: argparse.Namespace) -> None:
    suffix = args.output.suffix.lower() if args.output is not None else ".md"
    form: TableFormat | None = args.format or _SUFFIXES.get(suffix)
    if form is None:
        hint = f"add --format, or name it *{', *'.join(_SUFFIXES)}"
        raise ConfigError(Problem("-o", f"{args.output} has no known suffix", hint=hint))
    values = _read_values(table, root)
    text = escape_control(export_table(table.content, values, form))
    _print_problems(table.content, values)
    if args.output is None:
        print(text, end="")
    else:
        durable.write_text(args.output, text)
        print(f"wrote {args.output}")
