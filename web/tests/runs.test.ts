import { expect, test } from "vitest";

import type { Column } from "../src/api/types";
import { diffLines } from "../src/compare/diff_lines";
import { labelsOf, seedGroups } from "../src/compare/seed_groups";
import { orderJobs, placeAfterShift } from "../src/queue/order_jobs";
import { latestAt, stepsOf } from "../src/run/media";
import { defaultColumns, nextSort, parseSort, quoteName, sortQuery, sortText, suggestColumns, wordAt } from "../src/run_table/query";
import { axisOf, parallelOf } from "../src/chart/parallel";
import { blocksOf, columnsBetween } from "../src/run_table/run_list.svelte";

const column = (name: string, kind: Column["kind"], differs = true): Column => ({ name, kind, type: "number", differs });

test("names are quoted where the query language needs it", () => {
  const rows: [string, string][] = [
    ["val/acc", "val/acc"], ["optim.lr", "optim.lr"], ["hooks[0].x", "hooks[0].x"], ["a b", '"a b"'], ["a,b", '"a,b"'], ['say "x"\\', '"say \\"x\\"\\\\"'],
    ["-x", '"-x"'], ["1e5", '"1e5"'], ["not", '"not"'], ["", '""'], ["精度", '"精度"'], ["<img>", '"<img>"'],
  ];
  for (const [name, text] of rows) expect(quoteName(name), name).toBe(text);
});

test("a header sorts numbers from the largest, texts from the smallest, and a third click ends it", () => {
  const first = nextSort(null, "val/acc", true);
  expect(first).toEqual({ name: "val/acc", isDescending: true });
  const second = nextSort(first, "val/acc", true);
  expect(second).toEqual({ name: "val/acc", isDescending: false });
  expect(nextSort(second, "val/acc", true)).toBeNull();
  expect(nextSort(first, "tag", false)).toEqual({ name: "tag", isDescending: false });
  expect(sortQuery({ name: "a b", isDescending: true })).toBe('-"a b"');
  for (const text of ["", "tag", "-val/acc"]) expect(sortText(parseSort(text))).toBe(text);
});

test("the first columns are results, differing settings and the cost", () => {
  const columns = [column("step", "fact"), column("seconds", "fact"), column("best", "fact"), column("tag", "config"), column("optim.lr", "config"), column("same", "config", false), column("train/loss", "metric"), column("val/acc", "metric")];
  expect(defaultColumns(columns)).toEqual(["best", "val/acc", "train/loss", "optim.lr", "step", "seconds"]);
  expect(defaultColumns([column("val/probe/a/max", "metric"), ...columns])).toEqual(defaultColumns(columns));
  const metrics = ["train/epoch/acc", "train/loss", "val/acc"].map((name) => column(name, "metric"));
  expect(defaultColumns(metrics)).toEqual(["val/acc", "train/loss", "train/epoch/acc"]);
  expect(defaultColumns([])).toEqual([]);
  const settings = ["hooks", "hooks.0.patience", "optim.betas.0", "optim.betas", "launch.roots", "extra.note", "task.noise", "model.width"].map((name) => column(name, "config"));
  expect(defaultColumns(settings)).toEqual(["model.width", "optim.betas", "task.noise", "extra.note"]);
});

test("the word at the caret is completed by columns that contain it", () => {
  expect(wordAt("val/acc > 0.9 and opt", 21)).toEqual({ word: "opt", start: 18 });
  expect(wordAt("val/acc > ", 10)).toEqual({ word: "", start: 10 });
  const columns = [column("model.optim", "config"), column("optim.lr", "config"), column("val/acc", "metric")];
  expect(suggestColumns(columns, "optim").map((one) => one.name)).toEqual(["optim.lr", "model.optim"]);
  for (const word of ["", "and", "0.9", "zzz"]) expect(suggestColumns(columns, word), word).toEqual([]);
});

test("only the blocks of visible rows are loaded", () => {
  expect(blocksOf(0, 30, 10_000)).toEqual([0]);
  expect(blocksOf(40, 80, 10_000)).toEqual([0, 1]);
  expect(blocksOf(9_950, 12_000, 10_000)).toEqual([199]);
  expect(blocksOf(0, 30, 0)).toEqual([]);
});

test("runs that differ only by seed are one group", () => {
  const runs = ["a-1", "b-2", "c-3"].map((id) => ({ id, tag: "t", project: "p", status: "", step: 0, epoch: 0, started: "", ended: "" }));
  const parameters = [
    { key: "seed", values: [1, 2, 3], places: [], is_minor: false },
    { key: "lr", values: [0.1, 0.1, 0.2], places: [], is_minor: false },
  ];
  expect(seedGroups({ runs, parameters }).map((one) => one.ids)).toEqual([["a-1", "b-2"], ["c-3"]]);
});

test("labels tell runs apart", () => {
  const labels = labelsOf([{ id: "x-1", tag: "a" }, { id: "x-2", tag: "b" }, { id: "y-3", tag: "b" }, { id: "z", tag: "" }, { id: "p-4", tag: "c" }, { id: "q-4", tag: "c" }]);
  expect([...labels.values()]).toEqual(["a", "b 2", "b 3", "z", "c p-4", "c q-4"]);
});

test("lines of a diff have kinds", () => {
  expect(diffLines("--- a\n+++ b\n@@ -1 +1 @@\n-old\n+new\n same").map((one) => one.kind)).toEqual(["place", "remove", "add", "same"]);
  expect(diffLines("")).toEqual([]);
});

test("a step shows the newest file of each name up to it", () => {
  const item = (name: string, step: number) => ({ id: `${name}${step}`, name, step, kind: "image", type: "image/png" });
  const items = [item("a", 0), item("a", 10), item("b", 5)];
  expect(stepsOf(items)).toEqual([0, 5, 10]);
  expect(latestAt(items, 5).map((one) => one.id)).toEqual(["a0", "b5"]);
  expect(latestAt(items, 10).map((one) => one.id)).toEqual(["a10", "b5"]);
});

test("the queue shows running jobs, then waiting ones in their order, then those that ended last", () => {
  const job = (id: number, state: string, ended: number | null = null) => ({ id, state, ended }) as Parameters<typeof orderJobs>[0][number];
  const jobs = [job(1, "finished", 5), job(2, "failed", 9), job(3, "running"), job(5, "waiting"), job(4, "waiting")];
  expect(orderJobs(jobs).map((one) => one.id)).toEqual([3, 5, 4, 2, 1]);
});

test("a waiting job is put one place up or down, and not beyond the ends", () => {
  const jobs = [1, 2, 3, 4].map((id) => ({ id, state: id === 1 ? "running" : "waiting" }) as Parameters<typeof orderJobs>[0][number]);
  const places = ["2", "3", "4", "1"].map((id) => [placeAfterShift(jobs, id, -1), placeAfterShift(jobs, id, 1)]);
  expect(places).toEqual([[undefined, "4"], ["2", null], ["3", undefined], [undefined, undefined]]);
});

test("axes of trials are linear, logarithmic over a wide range, or lists of words", () => {
  expect(axisOf("width", [0, 10, 5, null]).place(5)).toBe(0.5);
  expect(axisOf("lr", [1e-4, 1e-2]).place(1e-3)).toBeCloseTo(0.5);
  expect(axisOf("same", [3, 3]).place(3)).toBe(0.5);
  const words = axisOf("type", ["sgd", "adam", "lion"]);
  expect(words.ticks.map((one) => one.text)).toEqual(["adam", "lion", "sgd"]);
  expect(axisOf("model", ["shop.models.transformers.Decoder", "a.B"]).ticks.map((one) => one.text)).toEqual(["a.B", "shop.models…mers.Decoder"]);
  expect([words.place("adam"), words.place("sgd"), words.place(undefined)]).toEqual([0, 1, null]);
});

test("lines of trials are drawn from the worst to the best", () => {
  const row = (key: number, lr: number, loss: number | null) => ({ key, name: `${key}`, isFaint: false, values: [lr, loss] });
  const { axes, lines } = parallelOf(["lr", "val/loss"], [row(0, 1, 0.5), row(1, 2, 0.1), row(2, 3, null)], "min");
  expect(axes.map((one) => one.name)).toEqual(["lr", "val/loss"]);
  expect(lines.map((one) => [one.key, one.quality])).toEqual([[2, null], [0, 0], [1, 1]]);
});

test("only columns that are visible or near are drawn", () => {
  const widths = Array.from({ length: 200 }, () => 100);
  expect(columnsBetween(widths, 300, -500, 500)).toEqual([0, 1]);
  expect(columnsBetween(widths, 300, 1000, 1300)).toEqual([7, 8, 9]);
  expect(columnsBetween(widths, 300, 0, 100_000)).toHaveLength(200);
  expect(columnsBetween([], 300, 0, 100)).toEqual([]);
});
