import { afterEach, expect, test, vi } from "vitest";

import { ApiFailure } from "../src/api/client";
import { Loader } from "../src/api/loader.svelte";
import type { RunTable } from "../src/api/types";
import { CurveStore } from "../src/chart/curve_store.svelte";
import { RunList } from "../src/run_table/run_list.svelte";

afterEach(() => vi.unstubAllGlobals());

type Answer = { url: URL; answer: (body: unknown, status?: number) => void };

/** Requests that a test answers in the order it likes. */
function catchRequests(): Answer[] {
  const asked: Answer[] = [];
  vi.stubGlobal("fetch", (url: string) => {
    return new Promise((resolve) => {
      const answer = (body: unknown, status = 200) => resolve(new Response(JSON.stringify(body), { status }));
      asked.push({ url: new URL(url, "http://localhost"), answer });
    });
  });
  return asked;
}

const settle = () => new Promise((resolve) => setTimeout(resolve, 0));

function table(ids: string[], total = ids.length): RunTable {
  return { total, columns: [], rows: ids.map((id) => ({ id }) as RunTable["rows"][number]), problem: null };
}

test("an answer that is overtaken by a later question is dropped", async () => {
  const loader = new Loader<number>();
  const answers: ((value: number) => void)[] = [];
  const ask = () => loader.load(() => new Promise<number>((resolve) => answers.push(resolve)));
  const [first, second] = [ask(), ask()];
  answers[1]?.(2);
  answers[0]?.(1);
  await Promise.all([first, second]);
  expect(loader.value).toBe(2);
});

test("a failure keeps the old value and says what happened", async () => {
  const loader = new Loader<number>();
  await loader.load(() => Promise.resolve(1));
  await loader.load(() => Promise.reject(new ApiFailure(404, "no such run", "")));
  expect([loader.value, loader.failure?.message]).toEqual([1, "no such run"]);
});

test("the table shows only the answer to its last query, and keeps its rows while a query is wrong", async () => {
  const asked = catchRequests();
  const list = new RunList();
  const query = { where: "a", sort: "", columns: "", group: "", archived: "" };
  list.ask(query);
  list.ask({ ...query, where: "b" });
  asked[1]?.answer(table(["b"]));
  await settle();
  asked[0]?.answer(table(["a"]));
  await settle();
  expect(list.row(0)?.id).toBe("b");
  list.ask({ ...query, where: "b >" });
  asked[2]?.answer({ ...table([]), problem: { what: "a value is missing", hint: "", column: 4 } });
  await settle();
  expect([list.problem?.what, list.total, list.row(0)?.id]).toEqual(["a value is missing", 1, "b"]);
  list.ask(query);
  asked[3]?.answer({ error: { what: "too many requests", hint: "" } }, 429);
  await settle();
  expect(list.failure?.message).toBe("too many requests");
});

test("a refresh loads the visible blocks again and no others", async () => {
  const asked = catchRequests();
  const list = new RunList();
  list.ask({ where: "", sort: "", columns: "", group: "", archived: "" });
  asked[0]?.answer(table(Array.from({ length: 100 }, (_, i) => `r${i}`), 1000));
  await settle();
  list.show(480, 530);
  list.show(480, 530);
  expect(asked.slice(1).map((one) => one.url.searchParams.get("offset"))).toEqual(["400", "500"]);
  asked.slice(1).forEach((one) => one.answer(table(["x"], 1000)));
  await settle();
  list.refresh();
  expect(asked.slice(3).map((one) => one.url.searchParams.get("offset"))).toEqual(["400", "500"]);
});

test("many runs are asked for in several requests", async () => {
  const asked = catchRequests();
  const store = new CurveStore(() => Array.from({ length: 100 }, (_, i) => `r${i}`));
  for (let i = 0; i < 6; i++) store.show(`m${i}`);
  await settle();
  await settle();
  expect(asked.map((one) => one.url.searchParams.getAll("name").length)).toEqual([4, 2]);
  asked[0]?.answer({ error: { what: "the server failed", hint: "" } }, 500);
  await settle();
  expect([...store.failed]).toEqual(["m0", "m1", "m2", "m3"]);
  store.retry("m0");
  await settle();
  expect(asked[2]?.url.searchParams.getAll("name")).toEqual(["m0"]);
});

test("curves that appear together are asked for together, and an old zoom is dropped", async () => {
  const asked = catchRequests();
  const store = new CurveStore(() => ["r1"]);
  store.show("a");
  store.show("b");
  await settle();
  expect(asked[0]?.url.searchParams.getAll("name")).toEqual(["a", "b"]);
  store.setView("step", [1, 2]);
  await settle();
  expect(asked[1]?.url.searchParams.get("from")).toBe("1");
  const pack = (value: number) => btoa(String.fromCharCode(...new Uint8Array(new Float64Array([value]).buffer)));
  const series = (x: number) => ({ series: [{ run: "r1", name: "a", x: pack(x), min: pack(0), max: pack(0), mean: pack(0), is_exact: true, count: 1 }] });
  asked[1]?.answer(series(2));
  await settle();
  asked[0]?.answer(series(1));
  await settle();
  expect(store.series.get("a")?.[0]?.x).toEqual([2]);
  expect(store.series.get("b")).toEqual([]);
});
