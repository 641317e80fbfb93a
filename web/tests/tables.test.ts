import { expect, test } from "vitest";

import type { ResultTable } from "../src/api/types";
import { firstAxes, parallelNames, sharesOf } from "../src/compare/explore";
import { sweepStatus, trialRuns } from "../src/sweeps/trial_runs";
import { addColumn, addRow, isSame, pasteCells, removeColumn, removeRow, renameColumn, setCell, toBody } from "../src/tables/draft";

const link = { run: "r1", metric: "val/acc", which: "best" as const, value: 0.9, problem: null };
const table: ResultTable = { name: "paper", version: 3, columns: ["method", "acc"], rows: [[{ text: "ours" }, link]] };

test("a table grows and shrinks without changing what is not touched", () => {
  const wider = addColumn(addColumn(table, "acc"), "acc");
  expect(wider.columns).toEqual(["method", "acc", "acc 2", "acc 3"]);
  expect(wider.rows[0]).toEqual([{ text: "ours" }, link, { text: "" }, { text: "" }]);
  expect(addRow(wider).rows[1]).toHaveLength(4);
  expect(removeColumn(table, 0)).toEqual({ columns: ["acc"], rows: [[link]] });
  expect(removeRow(table, 0).rows).toEqual([]);
  expect(renameColumn(table, 1, "F1").columns).toEqual(["method", "F1"]);
  expect(table.columns, "the saved table stays as it is").toEqual(["method", "acc"]);
});

test("links are saved without their values, so that a new value is no change", () => {
  expect(toBody(table, 3)).toEqual({ version: 3, columns: ["method", "acc"], rows: [[{ text: "ours" }, { run: "r1", metric: "val/acc", which: "best" }]] });
  expect(isSame(setCell(table, 0, 1, { ...link, value: 0.95 }), table)).toBe(true);
  expect(isSame(setCell(table, 0, 0, { text: "theirs" }), table)).toBe(false);
});

test("cells of a spreadsheet are pasted, with new rows and without new columns", () => {
  const pasted = pasteCells(table, 0, 0, "a\t1\t2\r\nb\t3\r\n");
  expect(pasted.rows.map((row) => row.map((cell) => ("text" in cell ? cell.text : "")))).toEqual([["a", "1"], ["b", "3"]]);
});

test("plots of many runs begin with the result and the parameter that mattered most", () => {
  const found = { columns: ["lr", "width", "val/acc"], metric: "val/acc", runs: [], importance: { lr: 0.2, width: 0.8 } };
  expect(firstAxes(found, "", "")).toEqual({ x: "width", y: "val/acc" });
  expect(firstAxes(found, "lr", "gone")).toEqual({ x: "lr", y: "val/acc" });
  const run = (id: string, ...values: (number | null)[]) => ({ id, tag: "", values });
  const rare = { ...found, runs: [run("a", 0.1, 8, 0.7), run("b", 0.2, null, 0.8), run("c", 0.2, null, 0.9)] };
  expect(firstAxes(rare, "", "").x).toBe("lr"); // only one run has a width
  expect(sharesOf({ ...found, importance: { lr: 0.2, width: 0.001 } })).toEqual({ lr: 0.2 });
  expect(sharesOf({ ...found, importance: { lr: 0 } })).toEqual({ lr: 0 });
  expect(parallelNames(found, "val/acc")).toEqual(["width", "lr", "val/acc"]);
});

test("a sweep that ended early was stopped", () => {
  const ended = { planned: 33, finished: 20, pruned: 10, failed: 3 };
  expect(sweepStatus({ ...ended, is_running: true })).toBe("running");
  expect(sweepStatus({ ...ended, is_running: false, pruned: 8 })).toBe("stopped"); // two trials wait
  expect(sweepStatus({ ...ended, is_running: false })).toBe("finished");
});

test("curves of a large sweep are those of the best and the newest trials", () => {
  const items = Array.from({ length: 300 }, (_, number) => ({ number, state: "finished" as const, values: {}, objectives: null, runs: [`r${number}`], error: null }));
  const runs = [...trialRuns({ items, best_trials: [7, 3] }).keys()];
  expect(runs.slice(0, 3)).toEqual(["r7", "r3", "r299"]);
  expect(runs).toHaveLength(100);
});
