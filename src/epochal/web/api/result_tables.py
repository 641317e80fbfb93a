"""The result tables of the project: cells that were typed, and cells that show metrics of runs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from epochal.records.project.result_tables import ResultTable, ResultTables
from epochal.records.project.table_content import MetricCell, parse_content
from epochal.records.project.table_export import export_table
from epochal.records.project.table_values import read_cell_values
from epochal.web.site.api_error import not_found
from epochal.web.site.numbers import to_json_value

if TYPE_CHECKING:
    from epochal.records.project.table_content import Cell
    from epochal.records.project.table_values import CellValue
    from epochal.web.site.route import ApiCall
    from epochal.web.site.site import Site


def get_tables(site: Site, call: ApiCall) -> dict[str, Any]:
    """All tables with their sizes."""
    found = ResultTables(site.index.root).list_tables()
    return {
        "tables": [
            {
                "name": one.name,
                "rows": len(one.content.rows),
                "columns": len(one.content.columns),
                "changed": one.changed,
            }
            for one in found
        ]
    }


def create_table(site: Site, call: ApiCall) -> dict[str, Any]:
    """A new table without columns."""
    return _to_json(site, ResultTables(site.index.root).create(call.body["name"]))


def get_table(site: Site, call: ApiCall) -> dict[str, Any]:
    """One table with the current values of its runs."""
    return _to_json(site, _find(site, call))


def write_table(site: Site, call: ApiCall) -> dict[str, Any]:
    """Replace the content of a table, unless it changed since the page read it."""
    name = _find(site, call).name
    content = parse_content(call.body["columns"], call.body["rows"])
    done = ResultTables(site.index.root).replace(name, call.body["version"], content)
    return _to_json(site, done)


def delete_table(site: Site, call: ApiCall) -> dict[str, Any]:
    """Remove a table."""
    name = _find(site, call).name
    ResultTables(site.index.root).remove(name)
    return {"deleted": name}


def get_table_export(site: Site, call: ApiCall) -> dict[str, Any]:
    """The table as Markdown, LaTeX or CSV."""
    content = _find(site, call).content
    values = _read_values(site, content.metric_cells)
    return {"text": export_table(content, values, call.query["format"])}


def _find(site: Site, call: ApiCall) -> ResultTable:
    found = ResultTables(site.index.root).find(call.path["name"])
    if found is None:
        raise not_found()
    return found


def _read_values(site: Site, cells: list[MetricCell]) -> dict[MetricCell, CellValue]:
    return site.index.ask(lambda index: read_cell_values(index, cells))


def _to_json(site: Site, table: ResultTable) -> dict[str, Any]:
    values = _read_values(site, table.content.metric_cells)

    def to_json(cell: Cell) -> dict[str, Any]:
        if not isinstance(cell, MetricCell):
            return dict(cell.to_json())
        value, problem = values[cell]
        return cell.to_json() | {"value": to_json_value(value), "problem": problem or None}

    return {
        "name": table.name,
        "version": table.version,
        "columns": list(table.content.columns),
        "rows": [[to_json(cell) for cell in row] for row in table.content.rows],
    }
