/** Changes to a result table before they are saved. */

import type { LinkCell, ResultTable, TableCell } from "../api/types";

export type Draft = Pick<ResultTable, "columns" | "rows">;

export function isLink(cell: TableCell): cell is LinkCell {
  return "run" in cell;
}

export function setCell(draft: Draft, row: number, column: number, cell: TableCell): Draft {
  const cells = draft.rows[row];
  return cells ? { ...draft, rows: draft.rows.with(row, cells.with(column, cell)) } : draft;
}

export function addRow(draft: Draft): Draft {
  return { ...draft, rows: [...draft.rows, draft.columns.map(() => ({ text: "" }))] };
}

export function removeRow(draft: Draft, row: number): Draft {
  return { ...draft, rows: draft.rows.toSpliced(row, 1) };
}

/** One more column, with a name that no other has. */
export function addColumn(draft: Draft, name: string): Draft {
  let wanted = name;
  for (let i = 2; draft.columns.includes(wanted); i++) wanted = `${name} ${i}`;
  return { columns: [...draft.columns, wanted], rows: draft.rows.map((row) => [...row, { text: "" }]) };
}

export function removeColumn(draft: Draft, column: number): Draft {
  return { columns: draft.columns.toSpliced(column, 1), rows: draft.rows.map((row) => row.toSpliced(column, 1)) };
}

export function renameColumn(draft: Draft, column: number, name: string): Draft {
  return { ...draft, columns: draft.columns.with(column, name) };
}

/** Cells of a spreadsheet, pasted at a place; rows are added, columns are not. */
export function pasteCells(draft: Draft, row: number, column: number, text: string): Draft {
  const lines = text.replace(/\r?\n$/, "").split(/\r?\n/).map((line) => line.split("\t"));
  return lines.reduce((now, cells, i) => {
    const grown = row + i < now.rows.length ? now : addRow(now);
    return cells.reduce((next, cell, k) => (column + k < next.columns.length ? setCell(next, row + i, column + k, { text: cell }) : next), grown);
  }, draft);
}

/** What is sent: links without their values, which the server reads from the records. */
export function toBody(draft: Draft, version: number): object {
  const rows = draft.rows.map((row) => row.map((cell) => (isLink(cell) ? { run: cell.run, metric: cell.metric, which: cell.which } : { text: cell.text })));
  return { version, columns: draft.columns, rows };
}

export function isSame(draft: Draft, table: ResultTable): boolean {
  return JSON.stringify(toBody(draft, 0)) === JSON.stringify(toBody(table, 0));
}
